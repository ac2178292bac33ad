package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
)

// space describes a file system's type and size, and the free space on it.
type space struct {
	kind               int64 // magic number of the file system's type
	bytes, freeBytes   uint64
	inodes, freeInodes uint64 // inodes is 0 if the file system has no fixed number of inodes
	device             uint64
}

// checkSpace returns a warning or a problem if the fraction of free space is below these
// limits.
const (
	spaceWarning = 0.10
	spaceProblem = 0.02
)

// unsuitable describes the types of file systems that should not contain the servers' data.
// The keys are the magic numbers of statfs(2).
var unsuitable = map[int64]string{
	0x01021994: "tmpfs, which a restart of the host empties",
	0x858458f6: "ramfs, which a restart of the host empties",
	0x6969:     "NFS, on which the databases can be damaged",
	0xff534d42: "SMB, on which the databases can be damaged",
	0xfe534d42: "SMB, on which the databases can be damaged",
}

// checkDisks checks the file systems of the servers' data directories and of
// containerd. On a host without servers, it checks the default data directory.
func checkDisks(servers []serve.Server) []finding {
	var data []string
	for _, s := range servers {
		if s.Data != "" && !slices.Contains(data, s.Data) {
			data = append(data, s.Data)
		}
	}
	if servers == nil {
		data = []string{nearest(defaultData)}
	}
	var found []finding
	seen := map[uint64]bool{}
	look := func(dir string, isData bool) {
		s, err := spaceOf(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			found = append(found, problem("disk", "start the servers, which create it, or restore it from a backup", "%s does not exist", dir))
			return
		case err != nil:
			found = append(found, failed("disk", "check the disk", err))
			return
		}
		if isData {
			if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
				found = append(found, failed("disk", "check the permissions of "+dir+", and whether its disk is mounted read-only", fmt.Errorf("%s is not writable: %w", dir, err)))
			}
			if what := unsuitable[s.kind]; what != "" {
				found = append(found, warning("disk", "move the data to a local disk", "%s is on %s", dir, what))
			}
		}
		if !seen[s.device] {
			seen[s.device] = true
			found = append(found, checkSpace(dir, &s))
		}
	}
	for _, dir := range data {
		look(dir, true)
	}
	if worker := workerOf(servers); worker != nil {
		if _, err := os.Stat(containerdData); err == nil {
			look(containerdData, false)
		}
	}
	return found
}

// containerdData is the default directory of containerd's images.
const containerdData = "/var/lib/containerd"

// nearest returns path or its nearest parent directory that exists.
func nearest(path string) string {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	return path
}

func spaceOf(dir string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("%s: %w", dir, err)
	}
	var where unix.Stat_t
	if err := unix.Stat(dir, &where); err != nil {
		return space{}, fmt.Errorf("%s: %w", dir, err)
	}
	block := uint64(st.Bsize)
	s := space{bytes: st.Blocks * block, freeBytes: st.Bavail * block, inodes: st.Files, freeInodes: st.Ffree}
	s.kind, s.device = int64(st.Type), uint64(where.Dev) //nolint:unconvert // other widths on other systems
	return s, nil
}

// checkSpace checks the free space and the free inodes of the file system that contains
// dir.
func checkSpace(dir string, s *space) finding {
	free := part(s.freeBytes, s.bytes)
	text := fmt.Sprintf("%s: %s free (%.0f%%)", dir, cli.Bytes(int64(s.freeBytes)), 100*free)
	if inodes := part(s.freeInodes, s.inodes); s.inodes > 0 && inodes < free {
		free = inodes
		if free < spaceWarning {
			text = fmt.Sprintf("%s: %d inodes free (%.0f%%)", dir, s.freeInodes, 100*free)
		}
	}
	const try = "free space on it, or use a larger disk"
	switch {
	case free < spaceProblem:
		return problem("disk", try, "%s", text)
	case free < spaceWarning:
		return warning("disk", try, "%s", text)
	}
	return ok("disk", "%s", text)
}

func part(free, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return float64(free) / float64(all)
}
