"""The deliberate mistakes in checkpoints, recovery, data order and transport that the tests must catch."""

from tests.mutation.mutations import Mutation

_FILES = "everstep/elastic/checkpoint/files.py"
_DISK = "everstep/elastic/checkpoint/disk.py"
_RESTORE = "everstep/elastic/checkpoint/restore.py"
_SHARDS = "everstep/elastic/checkpoint/sharded_store.py"
_AGREEMENTS = "everstep/elastic/recovery/node_agreements.py"
_SHARDED_GROUP = "everstep/elastic/recovery/sharded_worker.py"
_BUCKET = "everstep/elastic/checkpoint/bucket_store.py"
_SESSION = "everstep/elastic/training/session.py"
_CONNECTIVITY = "everstep/elastic/membership/connectivity.py"
_EVALUATION = "everstep/elastic/training/evaluation.py"
_RECOVERY = "everstep/elastic/recovery/state_machine.py"
_WORKER = "everstep/elastic/recovery/live_worker.py"
_LEDGER = "everstep/elastic/data_order/sample_ledger.py"
_KEYS = "everstep/elastic/membership/run_keys.py"
_KEY_READER = "everstep/elastic/membership/key_reader.py"
_ETCD = "everstep/elastic/membership/etcd_client.py"
_OWN_KEY = "everstep/elastic/membership/own_key.py"
_MEMBERSHIP = "everstep/elastic/membership/state_machine.py"
_SUSPICION = "everstep/elastic/membership/suspicion.py"
_SHARD_TESTS = (
    "tests/everstep/elastic/checkpoint/test_sharded_store.py",
    "tests/everstep/elastic/checkpoint/test_sharded_crashes.py",
)
_AGREEMENT_TESTS = ("tests/everstep/elastic/recovery/test_node_agreements.py",)
_SHARDED_GROUP_TESTS = ("tests/everstep/elastic/recovery/test_sharded_worker.py",)
_SHARDED_RUN_TESTS = ("tests/everstep/elastic/training/test_run_in_shards.py",)
_CHECKPOINT_TESTS = ("tests/everstep/elastic/checkpoint",)
_RECOVERY_TESTS = ("tests/everstep/elastic/recovery",)
_GROUP_TESTS = ("tests/everstep/elastic/training/test_run_in_groups.py",)
_CONNECTIVITY_TESTS = ("tests/everstep/elastic/membership/test_connectivity.py",)
_DATA_TESTS = ("tests/everstep/elastic/data_order",)
_TRANSPORT_TESTS = ("tests/everstep/elastic/transport",)
_SUSPICION_TESTS = ("tests/everstep/elastic/membership/test_suspicion.py",)
_MEMBERSHIP_TESTS = ("tests/everstep/elastic/membership",)
_KEY_TESTS = ("tests/everstep/elastic/membership/test_run_keys.py",)
_AGENT_TESTS = ("tests/everstep/elastic/membership/test_agent.py",)
_ETCD_TESTS = ("tests/everstep/elastic/membership/test_etcd_client.py",)
_STATE_MACHINE_TESTS = ("tests/everstep/elastic/membership/test_state_machine.py",)
_CLIPPING_TESTS = ("tests/everstep/elastic/training/test_clipping.py",)

ELASTIC_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "commit before anything is written",
        _FILES,
        "    staging = new_staging_folder(folder, manifest.step)\n    try:",
        "    staging = new_staging_folder(folder, manifest.step)\n"
        "    commit(manifest)\n    commit = lambda _: True\n    try:",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "state file not synced",
        _FILES,
        "        file.sync()\n    return size, checksum\n",
        "    return size, checksum\n",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "manifest not synced",
        _FILES,
        "file.write(manifest_content(manifest, size, checksum))\n        file.sync()\n",
        "file.write(manifest_content(manifest, size, checksum))\n",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "names of folders that another process created not synced",
        _FILES,
        "    disk.sync_parents(staging.parent)\n",
        "",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "names in the staging folder not synced",
        _FILES,
        "    disk.sync_folder(staging)\n",
        "",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "name of the staging folder not synced",
        _FILES,
        "    disk.sync_folder(staging.parent)\n",
        "",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "new name of a checkpoint not synced",
        _FILES,
        "    disk.sync_folder(final.parent)\n",
        "",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "sync of a file that does not reach the disk",
        _DISK,
        "        os.fsync(self._file.fileno())\n",
        "",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "sync of a folder that does not reach the disk",
        _DISK,
        "            os.fsync(descriptor)\n",
        "            pass\n",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "valid checkpoint replaced by a suspended writer",
        _FILES,
        "        if _is_valid(final, staged_checkpoint.manifest.generation, disk):",
        "        if False:",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "folder removed although it became complete meanwhile",
        _FILES,
        "    if _is_valid(staging, manifest.generation, disk):",
        "    if False:",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "damaged folder that hides a committed checkpoint of its step",
        _FILES,
        "    if not staged_folders or _is_valid(folder / folder_name(step), generation, disk):",
        "    if not staged_folders or disk.exists(folder / folder_name(step)):",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "committed checkpoint skipped without notice",
        _RESTORE,
        "    if record.generation:\n        reason",
        "    if older:\n        return older[0]\n    if record.generation:\n        reason",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "shard reported before it is synced",
        _SHARDS,
        "        size, checksum = files.write_state(staging / shard_file(number, count), state, self._disk)\n",
        "        with self._disk.create(staging / _written_file(number, count)) as file:\n"
        "            parts = b''.join(map(bytes, files.EncodedState(state)))\n"
        "            file.write(files.manifest_content(manifest, len(parts), files.zlib.crc32(parts)))\n"
        "        size, checksum = files.write_state(staging / shard_file(number, count), state, self._disk)\n",
        _SHARD_TESTS,
    ),
    Mutation(
        "shards of different snapshots combined",
        _SHARDS,
        "        if _identity(written) != _identity(manifest):\n            return None\n",
        "",
        _SHARD_TESTS,
    ),
    Mutation(
        "only the first shard verified",
        _FILES,
        "    for number, shard in enumerate(manifest.shards):\n        count",
        "    for number, shard in enumerate(manifest.shards[:1]):\n        count",
        _SHARD_TESTS,
    ),
    Mutation(
        "endless wait for a shard whose snapshot was replaced",
        _SHARDS,
        '                return "its worker has begun a later one"\n',
        "                continue\n",
        _SHARD_TESTS,
    ),
    Mutation(
        "shard given up although its file appears just before the next one",
        _SHARDS,
        "            if shard := self._written_shard(staging, manifest, number):\n                return shard\n",
        "            if not obstacle and (shard := self._written_shard(staging, manifest, number)):\n"
        "                return shard\n",
        _SHARD_TESTS,
    ),
    Mutation(
        "snapshot of a shard while another worker is not ready",
        _SHARDED_GROUP,
        "float(agreed_votes.due == self.shards)",
        "float(agreed_votes.due > 0)",
        _SHARDED_GROUP_TESTS,
    ),
    Mutation(
        "step that one shard applies and another one does not",
        _SHARDED_GROUP,
        "            if not (result := self._agreements.find_result()):\n                raise\n",
        "            raise\n",
        _SHARDED_GROUP_TESTS,
    ),
    Mutation(
        "no wait for a worker that may still receive the result",
        _AGREEMENTS,
        "            if not any(map(self._may_receive_result, slots)) or time",
        "            if True or time",
        _AGREEMENT_TESTS,
    ),
    Mutation(
        "shards of different histories with one name",
        _SHARDED_GROUP,
        "        agreed_generation = self._core.progress.agreed_generation\n",
        "        agreed_generation = 0\n",
        _SHARDED_GROUP_TESTS,
    ),
    Mutation(
        "each worker of a node chooses its checkpoint",
        _SHARDED_GROUP,
        "        if self.local_rank == 0:\n            step",
        "        if self.local_rank >= 0:\n            step",
        _SHARDED_GROUP_TESTS,
    ),
    Mutation(
        "state offered although a checkpoint has replaced half of it",
        _RECOVERY,
        "                self.phase, self.progress = Phase.RESTORING, StepProgress()",
        "                self.phase = Phase.RESTORING",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "worker with a shard that decides about checkpoints by its own clock",
        _SESSION,
        "        is_shared = self.worker.assignment.shards > 1",
        "        is_shared = False",
        _SHARDED_RUN_TESTS,
    ),
    Mutation(
        "worker with a shard that ignores the votes of the other shards",
        _SESSION,
        "                self._save_before_regroup(votes.leavers)",
        "                self._save_before_regroup(sums.leavers)",
        _SHARDED_RUN_TESTS,
    ),
    Mutation(
        "checkpoint in a bucket visible before its commit",
        _BUCKET,
        "        if not commit(manifest):\n            raise fenced_error(manifest)\n"
        "        self._bucket.put(_committed_key(name), content)\n",
        "        self._bucket.put(_committed_key(name), content)\n"
        "        if not commit(manifest):\n            raise fenced_error(manifest)\n",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "state in a bucket not verified",
        _BUCKET,
        "        if zlib.crc32(content) != manifest.checksum:",
        "        if False:",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "accepted loss of a checkpoint, undone by a late request to the bucket",
        _BUCKET,
        "        visible = set(self._names_in(COMMITTED)) - set(self._names_in(HIDDEN))",
        "        visible = set(self._names_in(COMMITTED))",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "hung storage that the run still waits for",
        _SESSION,
        "            if votes.hung:",
        "            if False:",
        ("tests/everstep/elastic/training/test_hung_storage.py",),
    ),
    Mutation(
        "checkpoint chosen by its step, regardless of its generation",
        _RESTORE,
        "return manifest.generation >= self.generation and manifest.step >= self.step",
        "return manifest.step >= self.step",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "option that accepts the loss of every checkpoint instead of the given one",
        _RESTORE,
        "        if record.step != accept_lost_step:",
        "        if not accept_lost_step:",
        _CHECKPOINT_TESTS,
    ),
    Mutation(
        "commit that replaces a later step",
        _KEYS,
        "            if previous >= committed:",
        "            if previous == committed:",
        _MEMBERSHIP_TESTS,
    ),
    Mutation(
        "commit whose transaction does not compare the newest commit",
        _KEYS,
        "            own_mod_revision=commit_entries[0].mod_revision if commit_entries else 0,\n",
        "",
        _MEMBERSHIP_TESTS,
    ),
    Mutation(
        "regroup requested for a generation that a stop has already aborted",
        _MEMBERSHIP,
        """kind == "regroup" and self._last_request == ("stop", number)""",
        "False",
        _MEMBERSHIP_TESTS,
    ),
    Mutation(
        "late response mistaken for the response to the next commit",
        _WORKER,
        'self._responses.get(int(message["request"]))',
        "next(iter(self._responses.values()), None)",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "torn state still offered to others",
        _RECOVERY,
        "            self.progress = StepProgress()  # torn from here on\n",
        "            pass\n",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "completed work dropped by a group that fails before it trains",
        _RECOVERY,
        "[*([RollBack()] if was_training else []), ",
        "[RollBack(), ",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "snapshot of an abandoned history committed",
        _RECOVERY,
        "return agreed if snapshot_generation >= self.unbroken_since else 0",
        "return agreed",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "avoided node that is avoided again without another attempt",
        _CONNECTIVITY,
        "self._failed_group.intersection(targets) - self.proven_members",
        "set(targets) - self.proven_members",
        _CONNECTIVITY_TESTS,
    ),
    Mutation(
        "end of an epoch that does not count as progress",
        _RECOVERY,
        "replace(self.progress, epoch_ended=True)",
        "self.progress",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "metrics of interrupted callbacks kept",
        _EVALUATION,
        "            state.restore_non_tensor_state(text)\n",
        "",
        _GROUP_TESTS,
    ),
    Mutation(
        "unequal states not reported",
        _RECOVERY,
        "tuple(rank for rank in advanced_ranks if rank not in sources)",
        "()",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "first of several unequal states instead of the majority's",
        _RECOVERY,
        "    return max(checksums, key=checksums.count)",
        "    return checksums[0]",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "last copy of the state, on a drained node, not saved",
        _WORKER,
        "                self._required_state().save_detached()\n",
        "",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "limbs of a digest too large for exact sums",
        _LEDGER,
        "LIMB_BITS = 8",
        "LIMB_BITS = 16",
        _DATA_TESTS,
    ),
    Mutation(
        "digest that overflows",
        _LEDGER,
        "(self.digest + digest) % 2**64",
        "self.digest + digest",
        _DATA_TESTS,
    ),
    Mutation(
        "abort that shuts down all sockets opened since the group was built",
        "everstep/elastic/transport/sockets.py",
        "    sockets = {fd: name for fd, name in new_sockets.items() if _is_connected_to(fd, *store)}",
        "    sockets = dict(new_sockets)",
        _TRANSPORT_TESTS,
    ),
    Mutation(
        "journal written by the training loop's thread",
        "everstep/elastic/accounting/journal.py",
        "                self._thread.start()\n",
        "                self._thread.run()\n",
        ("tests/everstep/elastic/accounting",),
    ),
    Mutation(
        "silence counted while the observer itself was frozen",
        _SUSPICION,
        "min(max(elapsed, 0.0), MAX_COUNTED_SECONDS)",
        "max(elapsed, 0.0)",
        _SUSPICION_TESTS,
    ),
    Mutation(
        "fence without a witness",
        _SUSPICION,
        "return (not others or agreements > 0) and agreements + 1 > denials",
        "return agreements + 1 > denials",
        _SUSPICION_TESTS,
    ),
    Mutation(
        "member fenced although observers that hear it are not outnumbered",
        _SUSPICION,
        "return (not others or agreements > 0) and agreements + 1 > denials",
        "return not others or agreements > 0",
        _SUSPICION_TESTS,
    ),
    Mutation(
        "torn tensor mistaken for a tensor of zeros",
        "everstep/elastic/recovery/copying.py",
        " if progress.agreed_generation else (),",
        ",",
        ("tests/everstep/elastic/recovery/test_copying.py",),
    ),
    Mutation(
        "checksum that is the sum of all words",
        "everstep/elastic/recovery/checksums.py",
        "    return _as_integers([_checksum(_words(tensor)) for tensor in tensors])\n",
        "    return word_sums(tensors)\n",
        ("tests/everstep/elastic/recovery/test_checksums.py",),
    ),
    Mutation(
        "products of 64-bit numbers, in which two changes of a sign cancel out",
        "everstep/elastic/recovery/checksums.py",
        "        words = _block_sums(words.view(torch.int32), level)\n",
        "        words = _block_sums(words, level)\n",
        ("tests/everstep/elastic/recovery/test_checksums.py",),
    ),
    Mutation(
        "worker that is behind compared by the sum of words",
        "everstep/elastic/recovery/copying.py",
        "    return _exchange(process_group, report, tensors, checksums)\n",
        "    return _exchange(process_group, report, tensors, word_sums)\n",
        ("tests/everstep/elastic/recovery/test_copying.py",),
    ),
    Mutation(
        "training steps that prove nothing about silent members",
        _SUSPICION,
        "        if trained_at is not None:\n",
        "        if False:\n",
        _SUSPICION_TESTS,
    ),
    Mutation(
        "training step of an earlier generation that hides a loss",
        "everstep/elastic/membership/heartbeats.py",
        "observation.generation.number == number",
        "number > 0",
        ("tests/everstep/elastic/membership/test_heartbeats.py",),
    ),
    Mutation(
        "fence that is not conditional on the current generation",
        _ETCD,
        "        conditions = [_unchanged(key, mod_revision)]\n        for name, revision in create_revisions",
        "        conditions = list[dict[str, str]]()\n        for name, revision in create_revisions",
        ("tests/everstep/elastic/membership/test_fence.py",),
    ),
    Mutation(
        "fenced member that puts its key back",
        _MEMBERSHIP,
        "        if self.view.has_fenced(self._lapsed_identity):\n"
        '            return self._act_once("stop", [Stop("the others suspected that this node is lost")])\n',
        "",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "group that does not wait for a fenced member that is alive",
        "everstep/elastic/membership/proposer.py",
        "max(wait_until, self._returns_until, awaited_until)",
        "max(wait_until, self._returns_until)",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "wait that a fenced member extends with each heartbeat",
        "everstep/elastic/membership/late_members.py",
        "self._until.setdefault(identity, now + RETURN_SECONDS)",
        "self._until[identity] = now + RETURN_SECONDS",
        ("tests/everstep/elastic/membership/test_late_members.py",),
    ),
    Mutation(
        "false suspicions that do not lengthen the silence accepted afterwards",
        "everstep/elastic/membership/arrivals.py",
        "            self._doublings = min(self._remaining_doublings(now) + 1, MAX_DOUBLINGS)\n",
        "",
        _SUSPICION_TESTS,
    ),
    Mutation(
        "instruction for an earlier generation that stops the present one",
        "everstep/elastic/membership/coordinators.py",
        "return newest.reason if newest and newest.number == number else None",
        "return newest.reason if newest else None",
        _MEMBERSHIP_TESTS,
    ),
    Mutation(
        "follower that decides from members it does not watch",
        _MEMBERSHIP,
        "return self.view.is_complete and self.watches_all",
        "return True",
        _MEMBERSHIP_TESTS,
    ),
    Mutation(
        "instruction not requested again after a late instruction of an earlier generation",
        "everstep/elastic/membership/coordinators.py",
        "        key = (kind, number, revision, replaces)\n",
        "        key = (kind, number, revision, 0)\n",
        _MEMBERSHIP_TESTS,
    ),
    Mutation(
        "unreadable key that ends the agent",
        _KEY_READER,
        "            return None\n        if entry.key in",
        "            raise\n        if entry.key in",
        _AGENT_TESTS,
    ),
    Mutation(
        "unreadable key logged at each read",
        _KEY_READER,
        "            if entry.key not in self._unreadable_keys:\n",
        "            if True:\n",
        _KEY_TESTS,
    ),
    Mutation(
        "member without a lease",
        "everstep/elastic/membership/key_values.py",
        "    if not entry.lease:\n",
        "    if False:\n",
        _KEY_TESTS,
    ),
    Mutation(
        "unreadable instruction that can never be replaced",
        _KEYS,
        'return instruction or Instruction(kind, 0, "", entry.mod_revision)',
        'return instruction or Instruction(kind, 0, "", 0)',
        _KEY_TESTS,
    ),
    Mutation(
        "removed generation that is not read again",
        _KEYS,
        'if change.kind == "delete" and change.entry.key in self._group_keys:',
        "if False:",
        _KEY_TESTS,
    ),
    Mutation(
        "group formed although a key cannot be read",
        _MEMBERSHIP,
        "        if not self.wants_group or self._unreadable:\n",
        "        if not self.wants_group:\n",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "joiner that ends a group although no other can form",
        _MEMBERSHIP,
        "admits=not self._unreadable",
        "admits=True",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "key put back although the generation is unknown",
        _MEMBERSHIP,
        "        if self._unreadable.generation:\n",
        "        if False:\n",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "unknown generation mistaken for a wiped etcd",
        "everstep/elastic/membership/run_view.py",
        "        elif not snapshot.unreadable.generation:\n",
        "        else:\n",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "proposal not repeated after a key was repaired",
        _MEMBERSHIP,
        "        if self._unreadable and not unreadable:\n",
        "        if False:\n",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "group that continues without a generation in etcd",
        _MEMBERSHIP,
        "        if not self.view.revision:  # the generation's key",
        "        if False:  # the generation's key",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "drained node that leaves although etcd has lost its group",
        _MEMBERSHIP,
        "        has_other_copy = not may_be_only_copy and (group is None or self._others_have_state(group))",
        "        has_other_copy = not may_be_only_copy",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "drained node that leaves with the only copy of its state",
        _MEMBERSHIP,
        "        has_other_copy = not may_be_only_copy and (group is None or self._others_have_state(group))",
        "        has_other_copy = group is None or self._others_have_state(group)",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "leaver that relies on workers which have not counted it",
        _WORKER,
        "        if not self._has_voted_to_leave:",
        "        if not self.leaving:",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "leaver that does not wait for the others to confirm the step",
        _RECOVERY,
        "        return self._leave_group() if leavers is Leavers.NONE else [Confirm(leavers)]",
        "        return self._leave_group() if leavers is Leavers.NONE else self._depart(leavers)",
        _RECOVERY_TESTS,
    ),
    Mutation(
        "agent that ends when its worker crashes during an outage",
        _OWN_KEY,
        "            except EverstepError as error:\n",
        "            except ZeroDivisionError as error:\n",
        _AGENT_TESTS,
    ),
    Mutation(
        "lease renewed after the node withdrew",
        _OWN_KEY,
        "            lease, self.lease = self.lease, 0\n        if lease:",
        "            lease = self.lease\n        if lease:",
        _AGENT_TESTS,
    ),
    Mutation(
        "revisions of two clusters compared by a watch",
        _ETCD,
        '    if header.get("cluster_id", cluster) != cluster:\n',
        "    if False:\n",
        _ETCD_TESTS,
    ),
    Mutation(
        "watch from a revision that a restored etcd has not reached",
        _ETCD,
        '    if int(header.get("revision", revision)) < revision - 1:\n',
        "    if False:\n",
        _ETCD_TESTS,
    ),
    Mutation(
        "revisions of two clusters compared by a read",
        _KEYS,
        "            bool(self._cluster) and reading.cluster != self._cluster\n",
        "            False\n",
        _KEY_TESTS,
    ),
    Mutation(
        "restored etcd with the same cluster not noticed",
        _KEYS,
        "        has_gone_back = reading.revision < self._last_revision\n",
        "        has_gone_back = False\n",
        _KEY_TESTS,
    ),
    Mutation(
        "watch of a cluster that other requests no longer reach",
        _KEYS,
        "        is_other_cluster = bool(self._cluster) and self._etcd.cluster != self._cluster\n",
        "        is_other_cluster = False\n",
        _KEY_TESTS,
    ),
    Mutation(
        "proposal not repeated in another etcd",
        _MEMBERSHIP,
        "        if snapshot.store_was_replaced or snapshot.revision",
        "        if snapshot.revision",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "leader election in etcd mistaken for a wrong password",
        _ETCD,
        'int(response.get("code", 0)) == _INVALID_ARGUMENT and',
        'int(response.get("code", 0)) > 0 and',
        _ETCD_TESTS,
    ),
    Mutation(
        "latecomers that do not extend the wait for the first group",
        "everstep/elastic/membership/proposer.py",
        "        if self._complete_since is None or names != self._waiting_identities:\n",
        "        if self._complete_since is None:\n",
        _STATE_MACHINE_TESTS,
    ),
    Mutation(
        "norm of gradients that depends on the order of summation",
        "everstep/elastic/training/clipping.py",
        "    return math.ldexp(round(math.ldexp(mantissa, BITS)), exponent - BITS)\n",
        "    return norm\n",
        _CLIPPING_TESTS,
    ),
    Mutation(
        "gradients that are not clipped",
        _SESSION,
        "            clip(self._trained_parameters(), max_norm)\n",
        "            pass\n",
        _CLIPPING_TESTS,
    ),
)
