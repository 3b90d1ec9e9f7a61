"""Log lines of NCCL and aws-ofi-nccl for each kind of network; host names are shortened.

They are from public issues and guides: aws-samples/aws-do-eks (EFA and sockets on g4dn), NVIDIA/nccl#1597 (p5en),
aws/aws-ofi-nccl#24 (p3dn, 2019) and #889, NVIDIA/nccl#952, and reports of libfabric's provider tcp and of Slingshot.
The lines of TWO_PROVIDERS are real, but they are combined here so that each process logs two providers.
"""

EFA_P4D = """\
a:30:70 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.7.3-aws
a:30:70 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
a:30:70 [0] NCCL INFO Using network AWS Libfabric
a:30:70 [0] NCCL INFO Channel 03 : 15[a01d0] -> 6[a01c0] [receive] via NET/AWS Libfabric/3/GDRDMA
a:30:70 [0] NCCL INFO Channel 03 : 4[901c0] -> 7[a01d0] via P2P/IPC/read
b:31:68 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
b:31:68 [0] NCCL INFO Using network AWS Libfabric
b:31:68 [0] NCCL INFO Channel 03 : 7[a01d0] -> 14[a01c0] [receive] via NET/AWS Libfabric/3/GDRDMA
"""

EFA_UNDER_MPI = """\
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO Bootstrap : Using eth0:10.11.13.106<0>
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v5 symbol.
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.5.0aws
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO NET/OFI Configuring AWS-specific options
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO NET/OFI Setting FI_EFA_FORK_SAFE environment variable to 1
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO Using network AWS Libfabric
[1,1]<stdout>:worker-1:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
[1,1]<stdout>:worker-1:21:21 [0] NCCL INFO Using network AWS Libfabric
[1,1]<stdout>:worker-1:21:26 [0] NCCL INFO Channel 00/0 : 0[35000] -> 1[f5000] [receive] via NET/AWS Libfabric/0
"""

EFA_DIRECT = """\
[2026-01-15 02:30:45] a:6310:6318 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)
[2026-01-15 02:30:45] a:6310:6318 [0] NCCL INFO NET/OFI Using transport protocol RDMA (platform set)
[2026-01-15 02:30:45] a:6310:6318 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
[2026-01-15 02:30:45] a:6310:6318 [0] NCCL INFO Using network Libfabric
[2026-01-15 02:30:45] b:6831:6840 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
[2026-01-15 02:30:45] b:6831:6840 [0] NCCL INFO Using network Libfabric
"""

EFA_2019 = """\
a:8716:9558 [2] NCCL INFO NET/OFI Selected Provider is efa
a:8716:9558 [2] NCCL INFO Ring 00 : 26[2] -> 30[6] via P2P/IPC
a:8716:9558 [2] NCCL INFO Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0
b:72593:73427 [7] NCCL INFO NET/OFI Selected Provider is efa
b:72593:73427 [7] NCCL INFO Ring 00 : 23 -> 24 [send] via NET/AWS Libfabric/0
"""

SOCKETS = """\
a:880:887 [0] NCCL INFO Bootstrap : Using eth0:172.17.0.2<0>
a:880:887 [0] NCCL INFO NET/IB : No device found.
a:880:887 [0] NCCL INFO NET/Socket : Using [0]eth0:172.17.0.2<0>
a:880:887 [0] NCCL INFO Using network Socket
b:880:888 [0] NCCL INFO Using network Socket
b:880:888 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""

SOCKETS_2_28 = """\
a:175945:177561 [0] NCCL INFO Failed to initialize NET plugin IB
a:175945:177561 [0] NCCL INFO NET/Socket : Using [0]enp3s0:192.168.1.2<0>
a:175945:177561 [0] NCCL INFO Initialized NET plugin Socket
a:175945:177561 [0] NCCL INFO Assigned NET plugin Socket to comm
b:180379:182573 [0] NCCL INFO Assigned NET plugin Socket to comm
b:180379:182573 [0] NCCL INFO Channel 00 : 0[60] -> 1[60] [receive] via NET/Socket/0
"""

PLUGIN_WITHOUT_ADAPTERS = """\
a:152:386 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v11)
a:152:386 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2
a:152:386 [0] NCCL INFO NET/OFI Configuring AWS-specific options
a:152:386 [0] NCCL INFO NET/OFI Setting provider_filter to efa
a:152:386 [0] NCCL INFO NET/OFI No eligible providers were found
a:152:386 [0] nccl_net_ofi_create_plugin:352 NCCL WARN NET/OFI aws-ofi-nccl initialization failed
a:152:386 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.5.28<0>
a:152:386 [0] NCCL INFO Using network Socket
b:153:387 [0] NCCL INFO NET/OFI Setting provider_filter to efa
b:153:387 [0] NCCL INFO NET/OFI No eligible providers were found
b:153:387 [0] NCCL INFO Using network Socket
"""

EFA_WITH_OLD_LIBFABRIC = """\
a:152:386 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)
a:152:386 [0] NCCL WARN NET/OFI EFA provider requires at least libfabric version 1.22.0.
a:152:386 [0] NCCL INFO Using network Socket
b:153:387 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)
b:153:387 [0] NCCL WARN NET/OFI EFA provider requires at least libfabric version 1.22.0.
b:153:387 [0] NCCL INFO Using network Socket
"""

LIBFABRIC_OVER_TCP = """\
a:40:52 [0] NCCL INFO NET/OFI No eligible providers were found
a:40:52 [0] NCCL INFO NET/OFI Selected provider is tcp, fabric is 172.31.32.0/20 (found 1 nics)
a:40:52 [0] NCCL INFO NET/OFI Need to force simple protocol: GDR not supported
a:40:52 [0] NCCL INFO Using network AWS Libfabric
b:41:53 [0] NCCL INFO NET/OFI Selected provider is tcp, fabric is 172.31.32.0/20 (found 1 nics)
b:41:53 [0] NCCL INFO Using network AWS Libfabric
b:41:53 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/0
"""

LIBFABRIC_OVER_SOCKETS = """\
a:21:21 [0] NCCL INFO NET/OFI Selected Provider is sockets
a:21:21 [0] NCCL INFO Using network AWS Libfabric
b:21:21 [0] NCCL INFO NET/OFI Selected Provider is sockets
b:21:21 [0] NCCL INFO Using network AWS Libfabric
"""

TWO_PROVIDERS = """\
a:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
a:21:21 [0] NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)
a:21:21 [0] NCCL INFO Using network AWS Libfabric
b:21:21 [0] NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)
b:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
b:21:21 [0] NCCL INFO Using network AWS Libfabric
"""

SLINGSHOT = """\
a:40:52 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.6.0-hcopy
a:40:52 [0] NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)
a:40:52 [0] NCCL INFO Using network AWS Libfabric
b:40:52 [0] NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)
b:40:52 [0] NCCL INFO Using network AWS Libfabric
b:40:52 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/0/GDRDMA/Shared
"""

INFINIBAND = """\
a:2201:2201 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.11
a:2201:2201 [0] NCCL INFO Using network IB
b:2202:2202 [0] NCCL INFO Using network IB
b:2202:2202 [0] NCCL INFO Channel 00 : 0[0] -> 8[0] [receive] via NET/IB/0/GDRDMA
"""

TCPX = """\
a:10:11 [0] NCCL INFO Using network GPUDirectTCPX_v7
b:10:11 [0] NCCL INFO Using network GPUDirectTCPX_v7
"""

ONE_NODE = """\
a:10:11 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC/read
a:12:13 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via SHM
"""

EFA_RUNS = (EFA_P4D, EFA_UNDER_MPI, EFA_DIRECT, EFA_2019)
SOCKET_RUNS = (SOCKETS, SOCKETS_2_28, PLUGIN_WITHOUT_ADAPTERS, EFA_WITH_OLD_LIBFABRIC)
LIBFABRIC_RUNS = (LIBFABRIC_OVER_TCP, LIBFABRIC_OVER_SOCKETS, TWO_PROVIDERS, SLINGSHOT)
OTHER_RUNS = (INFINIBAND, TCPX, ONE_NODE, "")
