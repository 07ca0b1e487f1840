"""Makes torrentdist/csi/csi_pb2.py and its types from the CSI specification's csi.proto:

    python scripts/csi_stubs.py PATH/csi.proto

It needs grpcio-tools. The file is in the Go module github.com/container-storage-interface/spec;
what we have is from v1.12.0.

Always: only the messages of the Identity and Node services are kept, a quarter of the file.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

DEST = Path(__file__).parent.parent / "torrentdist" / "csi"
SERVICES = ("Identity", "Node")
NAME = "torrentdist_csi.proto"
NOTICE = """# Made by scripts/csi_stubs.py from csi.proto of the Container Storage Interface, v1.12.0, by the
# CSI authors: github.com/container-storage-interface/spec, under the Apache License 2.0. Comments
# and other services are left out.
"""


def protoc(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)


def types_in(message: DescriptorProto) -> Iterator[str]:
    """Returns the types of a message's fields, as `.csi.v1.Name`."""
    yield from (field.type_name for field in message.field)
    for nested in message.nested_type:
        yield from types_in(nested)


def strip(message: DescriptorProto) -> None:
    """Removes options, which name extensions that nothing here reads."""
    if not message.options.map_entry:
        message.ClearField("options")
    for field in message.field:
        field.ClearField("options")
    for enum in message.enum_type:
        enum.ClearField("options")
        for value in enum.value:
            value.ClearField("options")
    for nested in message.nested_type:
        strip(nested)


def pruned(full: FileDescriptorProto) -> FileDescriptorProto:
    messages = {f".{full.package}.{message.name}": message for message in full.message_type}
    methods = [method for service in full.service if service.name in SERVICES for method in service.method]
    todo, seen = [kind for method in methods for kind in (method.input_type, method.output_type)], set[str]()
    while todo:
        name = ".".join(todo.pop().split(".")[:4])  # a nested type comes with the message around it
        if name in messages and name not in seen:
            seen.add(name)
            todo += types_in(messages[name])
    kept = FileDescriptorProto(name=NAME, package=full.package, syntax=full.syntax)
    kept.dependency.append("google/protobuf/wrappers.proto")
    for name, message in messages.items():
        if name in seen:
            strip(message)
            kept.message_type.add().CopyFrom(message)
    return kept


def main(source: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        whole, small = Path(directory, "whole"), Path(directory, "small")
        protoc(f"-I{source.parent}", "--include_imports", f"--descriptor_set_out={whole}", str(source))
        files = {file.name: file for file in FileDescriptorSet.FromString(whole.read_bytes()).file}
        kept = FileDescriptorSet(file=[files["google/protobuf/wrappers.proto"], pruned(files[source.name])])
        small.write_bytes(kept.SerializeToString())
        protoc(f"--descriptor_set_in={small}", f"--python_out={directory}", f"--pyi_out={directory}", NAME)
        for suffix in ("py", "pyi"):
            made = Path(directory, f"{Path(NAME).stem}_pb2.{suffix}").read_text(encoding="utf-8")
            (DEST / f"csi_pb2.{suffix}").write_text(NOTICE + made, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
