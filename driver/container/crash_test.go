package container

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/driver/logs"
)

// crashDaemon runs a daemon until the test kills it. first is the number of its first machine.
func crashDaemon(address, dir, image, first string) error {
	n, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	keeper := logs.NewKeeper(logs.KeeperConfig{Dir: dir + "-logs", Command: keeperCommand})
	d := New(Config{Address: address, Dir: dir, Keeper: keeper})
	return drivertest.LiveOn(d, driver.Task{Image: image}, n, os.Stdout)
}

func TestDaemonKilled(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	drivertest.Killed{
		Kills: 6, Every: 3, Within: 300 * time.Millisecond,
		Daemon: func(ctx context.Context, first int) *exec.Cmd {
			return exec.CommandContext(ctx, "/proc/self/exe", "daemon", h.cfg.Address, h.cfg.Dir, image, itoa(first))
		},
		Look: func(t *testing.T, check func(driver.Driver, []driver.Status)) {
			d, list := h.recovered(t)
			check(d, list)
			// Requests of a dead daemon may still take effect in containerd; the driver removes
			// the results.
			eventually(t, "only recovered objects exist", func() bool {
				var extra []string
				for _, what := range mine(h.server.Leftovers(), d.layout.mark()) {
					if !ofTasks(what, list) {
						extra = append(extra, what)
					}
				}
				return len(extra) == 0
			})
			h.close(t) // so that the next daemon can lock the directory
		},
	}.Run(t)
}

// ofTasks reports whether a leftover object belongs to a task in list.
func ofTasks(what string, list []driver.Status) bool {
	for _, status := range list {
		if strings.Contains(what, taskName(status.ID)) {
			return true
		}
	}
	return false
}
