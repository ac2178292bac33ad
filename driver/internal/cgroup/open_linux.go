package cgroup

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// sweepGrace is the time limit for killing the processes that an earlier supervisor left in a
// cgroup.
const sweepGrace = 5 * time.Second

// Open determines which of the host's cgroups can be used. It removes the cgroups that an earlier process with the same
// mark left behind, and kills the processes in them. Open logs errors instead of returning them. If only some cgroups
// can be used, it returns Groups that work with those. If no cgroups can be used, it returns None.
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
		g, err = openV2OrSubtree(choice.V2, mark, log)
	}
	if err != nil {
		log.Warn("cgroups cannot be used", "mode", choice.Mode, "err", err)
		return None{}
	}
	return g
}

// openV2OrSubtree opens the unified hierarchy at its root. If that fails, it opens the subtree that this process
// belongs to, because the process may have permission to use that subtree.
func openV2OrSubtree(root, mark string, log *slog.Logger) (Groups, error) {
	g, err := openV2(root, mark, log)
	if err == nil {
		return g, nil
	}
	self, _ := os.ReadFile("/proc/self/cgroup")
	if own := parseSelf(string(self))[""]; len(own) > 1 {
		return openV2(filepath.Join(root, own), mark, log)
	}
	return nil, err
}
