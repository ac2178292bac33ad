package process

import (
	"os"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// TestGroupsAreTheHosts mounts other files over the host's cgroups in a task, and checks that the task's limits still
// apply, even to a command executed in the task. This works because a process enters its groups before it enters the
// task's namespaces.
func TestGroupsAreTheHosts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	if d.Labels()["limit.memory"] == "" {
		t.Skip("this host cannot limit memory")
	}
	task := program("sleep", "1000")
	task.Limits = driver.Limits{Memory: 64, PIDs: 100}
	task.Mounts = []driver.Mount{{Source: t.TempDir(), Target: "/sys/fs/cgroup"}}
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	got, err := d.Exec(t.Context(), task.ID, driver.Exec{Command: []string{"sh", "-c", "cat /proc/self/cgroup"}})
	if err != nil || got.Exit.Failed() {
		t.Fatalf("Exec returned %+v, %v", got, err)
	}
	if own := "/" + cgroup.Parent + "/" + h.d.layout.mark() + "/t"; !strings.Contains(string(got.Stdout), own) {
		t.Errorf("a command executed in the task is in the groups\n%s, want %s", got.Stdout, own)
	}
}
