"""Names of files in the message of an error."""

from trainer.data.named_files import MAX_NAMED_FILES, named_files


def test_a_few_files_are_all_named() -> None:
    assert named_files(["a.jpg", "b.jpg"]) == "\n  a.jpg\n  b.jpg"


def test_a_message_names_the_first_files_and_counts_the_others() -> None:
    files = [f"{number}.jpg" for number in range(MAX_NAMED_FILES + 2)]

    lines = named_files(files).splitlines()

    assert lines[1:] == [f"  {name}" for name in files[:MAX_NAMED_FILES]] + ["  and 2 more"]
