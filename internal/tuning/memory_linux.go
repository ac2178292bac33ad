package tuning

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// hostMemory returns the host's memory in bytes, 0 when it is not known.
func hostMemory() uint64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // of other widths elsewhere
}

// cgroupMemory returns the smallest limit of memory among the process's cgroup
// and those above it, of either version, 0 when there is none. membership is
// the file that names them, root where they are mounted.
func cgroupMemory(membership, root string) uint64 {
	file, err := os.Open(membership)
	if err != nil {
		return 0
	}
	defer file.Close()
	var limit uint64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		dir, name := root, "memory.max"
		switch {
		case controllers == "": // version 2
		case strings.Contains(","+controllers+",", ",memory,"):
			dir, name = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			if n := limitIn(filepath.Join(dir, path, name)); n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if path == "/" {
				break
			}
		}
	}
	return limit
}

// limitIn reads a limit in bytes, 0 for none.
func limitIn(file string) uint64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return n
}
