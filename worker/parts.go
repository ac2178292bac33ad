package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/watch"

	"github.com/bourse-dev/bourse/worker/tasks"
)

// newMachines makes the worker's machines.
func (w *Worker) newMachines() *machines.Machines {
	cfg := &w.cfg
	c := machines.Config{
		State: w.state, Admit: w.host, Drivers: map[bourse.ImageKind]driver.Driver{bourse.HostImage: cfg.Driver},
		Volumes: w.volumes, Secrets: &machines.SecretReader{View: cfg.Secrets}, Network: cfg.Network, Scratch: cfg.Volumes, Images: cfg.Images,
		Policy: machines.Policy{SharedQuota: cfg.SharedQuota, PIDs: cfg.PIDs}, Awake: w.awakeEnv, Forget: cfg.Forget,
	}
	if cfg.Container != nil {
		c.Drivers[bourse.RegistryImage] = cfg.Container
	}
	if cfg.Pull != nil {
		c.Drivers[bourse.PollerImage] = cfg.Pull
	}
	ms := machines.New(c)
	if cfg.Images != nil {
		cfg.Images.SetInUse(ms.ImageInUse)
	}
	return ms
}

// newTasks makes the worker's tasks.
func (w *Worker) newTasks() *tasks.Tasks {
	return tasks.New(w.state, w.host, w.machines, w.cfg.Network, func(ctx context.Context, id bourse.OrderID) error {
		_, err := w.cancel(ctx, id)
		return err
	})
}

// startUsed starts a machine that someone wants to use.
func (w *Worker) startUsed(ctx context.Context, id bourse.MachineID) error {
	_, err := w.machines.Start(ctx, id, fabric.Act{})
	return err
}

// startScheduled starts a machine whose schedule says so.
func (w *Worker) startScheduled(ctx context.Context, id bourse.MachineID, check func(*bourse.Machine) error, write func(*bourse.Machine) []bourse.Event) error {
	ctx, cancel := context.WithTimeout(ctx, scheduledPatience)
	defer cancel()
	_, err := w.machines.StartIf(ctx, id, check, write)
	if bourse.CodeOf(err) == bourse.CodeTimeout { // it is recorded, and goes on
		return nil
	}
	return err
}

// scheduledPatience is how long others that are due wait for a machine to start.
const scheduledPatience = 5 * time.Second

// awakeEnv returns what a program of the host has in its environment to keep its
// machine awake, and serves that.
func (w *Worker) awakeEnv(m *bourse.Machine) []string {
	if w.awake == nil || len(m.Config.Services) == 0 || m.Config.ImageKind() != bourse.HostImage {
		return nil
	}
	path := w.awake.Socket(m.ID)
	if path == "" {
		return nil
	}
	if err := w.awake.Listen(m.ID); err != nil {
		w.log.Warn("listen on the socket of a machine failed: it cannot keep itself awake", "machine", m.ID, "err", err)
	}
	return []string{watch.EnvAwake + "=" + path}
}
