package vmtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Disk is the guest's only disk, which every kernel knows without a module. What the guest is
// made of is copied to it, because identities are judged and kept by the times of files, and those
// of files in memory are not believed (package fstimes).
const Disk = "/dev/nvme0n1"

// diskSize has room for what the guest is made of, and for what tests write. What nobody writes
// takes no room on the host.
const diskSize = 2 << 30

// makeDisk makes a file with an empty file system of the kind that most machines have. All of it
// is made now: what mkfs.ext4 leaves to the kernel would be done beside the tests.
func makeDisk(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return err
	}
	cmd := exec.Command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w\n%s", err, out)
	}
	return nil
}
