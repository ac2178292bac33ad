package process

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/bourse-dev/bourse/internal/companion"
)

// spawn starts a supervisor in a new session and waits until it accepts connections.
func (d *Driver) spawn(ctx context.Context) error {
	command := d.cfg.Supervisor
	if len(command) > 0 {
		command = slices.Concat(command, []string{d.layout.dir})
	}
	p, err := companion.Spawn(ctx, command, d.layout.log())
	if p != nil {
		d.reap(p)
	}
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	return nil
}

// reap stores p, the supervisor that this process has just started. If this process had started an
// earlier supervisor, which is now exiting, reap collects its exit status in the background. It
// does not wait for running supervisors, because they outlive this process.
func (d *Driver) reap(p *os.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.child; before != nil {
		go func() { _, _ = before.Wait() }() // the previous supervisor has closed its socket and is about to exit
	}
	d.child = p
}
