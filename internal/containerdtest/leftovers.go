package containerdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// snapshotter is the snapshotter into which images are unpacked.
const snapshotter = "overlayfs"

// Leftovers lists objects that containers left behind: records, tasks, snapshots that do
// not belong to an image, leases, shims and mounts. It does not list images. The server
// must be running.
func (s *Server) Leftovers() []string {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := containerd.New(s.Address)
	if err != nil {
		return []string{err.Error()}
	}
	defer c.Close()
	names, err := c.NamespaceService().List(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, name := range names {
		got, err := records(namespaces.WithNamespace(ctx, name), c)
		if err != nil {
			return append(left, err.Error())
		}
		for _, what := range got {
			left = append(left, "namespace "+name+": "+what)
		}
	}
	for _, pid := range s.Shims() {
		left = append(left, fmt.Sprintf("shim %d: %s", pid, commandLine(pid)))
	}
	for _, path := range s.Mounts() {
		left = append(left, "mount "+path)
	}
	return left
}

// records lists what containers left behind in one of containerd's namespaces.
func records(ctx context.Context, c *containerd.Client) ([]string, error) {
	var left []string
	list, err := c.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		left = append(left, "container "+r.ID)
	}
	leases, err := c.LeasesService().List(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		left = append(left, "lease "+l.ID)
	}
	err = c.SnapshotService(snapshotter).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindCommitted {
			left = append(left, "snapshot "+i.Name)
		}
		return nil
	})
	return left, err
}

// Shims returns the process ids of the shims of this server's containers.
func (s *Server) Shims() []int {
	var out []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args := strings.Fields(commandLine(pid))
		if len(args) > 0 && strings.Contains(args[0], "containerd-shim") && slices.Contains(args, s.Address) {
			out = append(out, pid)
		}
	}
	return out
}

// commandLine returns the command line of a process, or "" if it has exited. A shim's
// command line contains its first container.
func commandLine(pid int) string {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// Mounts returns the mounts below the server's directory.
func (s *Server) Mounts() []string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	var out []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], s.Dir+"/") {
			out = append(out, f[4])
		}
	}
	return out
}
