package cgroup

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// sweepGrace is how long what an earlier process left may take to die.
const sweepGrace = 5 * time.Second

// Open finds out what the host lets us use, kills and removes what an earlier
// process has left by the same mark, and returns what makes new groups. It
// never fails: what does not work is not used.
func Open(mark string, log *slog.Logger) Groups {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.Warn("cgroups cannot be used", "err", err)
		return None{}
	}
	choice := Choose(ParseMountinfo(string(mounts)))
	var g Groups = None{}
	switch {
	case len(choice.V1) > 0:
		g, err = openV1(choice, mark, log)
	case choice.V2 != "":
		g, err = openV2Or(choice.V2, mark, log)
	}
	if err != nil {
		log.Warn("cgroups cannot be used", "mode", choice.Mode, "err", err)
		return None{}
	}
	return g
}

// openV2Or opens the unified hierarchy at its root or, where that is refused,
// in the subtree that this process was started in.
func openV2Or(root, mark string, log *slog.Logger) (Groups, error) {
	g, err := openV2(root, mark, log)
	if err == nil {
		return g, nil
	}
	self, _ := os.ReadFile("/proc/self/cgroup")
	if own := ParseSelf(string(self))[""]; len(own) > 1 {
		return openV2(filepath.Join(root, own), mark, log)
	}
	return nil, err
}
