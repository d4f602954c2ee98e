package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/vmtest"
)

// onDisk reports whether the root is the disk already.
func onDisk() bool {
	var root unix.Statfs_t
	return unix.Statfs("/", &root) == nil && root.Type == unix.EXT4_SUPER_MAGIC
}

// moveToDisk copies the initramfs to the disk, makes that the root and begins anew there. It
// returns only with an error.
func moveToDisk() error {
	const disk = "/disk"
	if err := mountDisk(disk); err != nil {
		return fmt.Errorf("mounting %s: %w", vmtest.Disk, err)
	}
	if err := moveFiles(disk); err != nil {
		return fmt.Errorf("filling %s: %w", vmtest.Disk, err)
	}
	// As switch_root(8) does it: what is mounted cannot be pivoted with an initramfs.
	err := os.Chdir(disk)
	if err == nil {
		err = unix.Mount(".", "/", "", unix.MS_MOVE, "")
	}
	if err == nil {
		err = unix.Chroot(".")
	}
	if err == nil {
		err = os.Chdir("/")
	}
	if err == nil {
		err = unix.Exec("/init", []string{"init"}, environment)
	}
	return fmt.Errorf("the disk as the root: %w", err)
}

// mountDisk mounts the disk, which the kernel may still be looking for.
func mountDisk(dir string) error {
	const patience = time.Minute
	if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, "")); err != nil {
		return err
	}
	err := unix.Mount(vmtest.Disk, dir, "ext4", 0, "")
	for end := time.Now().Add(patience); errors.Is(err, fs.ErrNotExist) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err = unix.Mount(vmtest.Disk, dir, "ext4", 0, "")
	}
	return errors.Join(err, unix.Unmount("/dev", 0))
}

// moveFiles moves all files of the initramfs, to have the memory that they are in.
func moveFiles(to string) error {
	return filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == to || path == "/dev" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, path)
		switch info.Mode().Type() {
		case fs.ModeDir:
			return os.MkdirAll(target, info.Mode().Perm())
		case fs.ModeSymlink:
			if err := copyLink(target, path); err != nil {
				return err
			}
		case 0:
			// Jobs are asked for the files that are newer than they.
			err := errors.Join(copyFile(target, path), os.Chmod(target, info.Mode().Perm()), os.Chtimes(target, info.ModTime(), info.ModTime()))
			if err != nil {
				return err
			}
		}
		return os.Remove(path)
	})
}

func copyLink(to, from string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}
