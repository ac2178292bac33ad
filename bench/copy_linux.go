package main

import (
	"os"

	"golang.org/x/sys/unix"
)

func forgetPages(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
