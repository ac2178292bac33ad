package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// In v1, the freezer is a separate hierarchy. Moving each new process into it would delay every start by at least 5 ms,
// so a group's processes are moved into it when the group is first frozen. See
// Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst.

// openFreezer creates the directory for frozen groups, and kills processes that an earlier supervisor left in it.
func (g *v1Groups) openFreezer(mount, mark string, log *slog.Logger) {
	if mount == "" {
		return
	}
	dir := filepath.Join(mount, Parent, mark)
	if err := os.MkdirAll(dir, 0o755); err != nil || !exists(filepath.Dir(dir), freezerState) {
		return
	}
	g.freezerDir = dir
	if err := sweep(dir, ""); err != nil {
		log.Warn("frozen cgroups of an earlier supervisor remain", "err", err)
	}
}

// freezerPath returns the path of the group's cgroup in the freezer hierarchy.
func (g *v1Group) freezerPath() string { return filepath.Join(g.all.freezerDir, g.name) }

func (g *v1Group) mayBeFrozen() bool {
	return g.all.freezerDir != "" && exists(g.freezerPath(), freezerState)
}

// Freeze implements Group.
func (g *v1Group) Freeze(ctx context.Context, frozen bool) error {
	switch {
	case g.all.freezerDir == "":
		return errors.ErrUnsupported
	case !frozen && !g.mayBeFrozen():
		return nil
	case !frozen:
		return writeFile(g.freezerPath(), freezerState, "THAWED")
	}
	if err := syscall.Mkdir(g.freezerPath(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make cgroup %s: %w", g.freezerPath(), err)
	}
	err := until(ctx, func() (bool, error) {
		left, err := g.moveToFreezer()
		if err != nil || left > 0 {
			return false, err
		}
		// Write FROZEN at each attempt, because the write makes the kernel try again.
		if err := writeFile(g.freezerPath(), freezerState, "FROZEN"); err != nil {
			return false, err
		}
		if strings.TrimSpace(readFile(g.freezerPath(), freezerState)) != "FROZEN" {
			return false, nil
		}
		left, err = g.moveToFreezer() // processes that were forked in the meantime; moving them freezes them
		return left == 0, err
	})
	if err != nil {
		return errors.Join(err, writeFile(g.freezerPath(), freezerState, "THAWED"))
	}
	return nil
}

// moveToFreezer moves the group's processes to the freezer and returns the number of moved processes. Because
// processes may fork while they are being moved, call it until it returns 0.
func (g *v1Group) moveToFreezer() (int, error) {
	there, err := members(g.freezerPath())
	if err != nil {
		return 0, err
	}
	moved := 0
	for _, pid := range g.Members() {
		if slices.Contains(there, pid) {
			continue
		}
		if err := writeFile(g.freezerPath(), "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return moved, err
		}
		moved++
	}
	return moved, nil
}
