package cgroup

import (
	"os"
	"path/filepath"
)

// readFile returns the contents of one of a cgroup's files, or "" if the file cannot be read.
func readFile(dir, file string) string {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return string(b)
}

func exists(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}
