package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// copyFile is what people would do instead: cp, and wait for the disk.
func copyFile(ctx context.Context, from, to string) error {
	if text, err := exec.CommandContext(ctx, "cp", "--reflink=never", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, text)
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Remove(to)
}

// uncached has the next reader of a file read it from the disk.
func uncached(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return forgetPages(f)
}
