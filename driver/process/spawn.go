package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// spawn starts a supervisor in a session of its own and waits until it
// listens.
func (d *Driver) spawn(ctx context.Context) error {
	command := d.cfg.Supervisor
	if len(command) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "no command for the supervisor")
	}
	path, err := lookup(command[0], searchPath(nil), "/")
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	log, err := os.OpenFile(d.layout.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > 1<<20 {
		_ = log.Truncate(0) // it says little; nobody rotates it
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := os.StartProcess(path, slices.Concat(command, []string{d.layout.dir}), &os.ProcAttr{
		Dir: "/", Env: append(os.Environ(), fmt.Sprintf("%s=%d", readyVariable, readyDescriptor)),
		Files: []*os.File{null, log, log, w}, Sys: ownSession(),
	})
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	d.reap(p)
	return awaitReady(ctx, r)
}

// reap makes p the supervisor that is our child, and collects the one before,
// which is ending. Until then nothing waits for a supervisor: it is to outlive
// us.
func (d *Driver) reap(p *os.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.child; before != nil {
		go func() { _, _ = before.Wait() }() // it has closed its socket: this is its last moment
	}
	d.child = p
}

// awaitReady reads what a supervisor says of its start.
func awaitReady(ctx context.Context, r *os.File) error {
	deadline, ok := ctx.Deadline()
	if most := time.Now().Add(startTimeout); !ok || deadline.After(most) {
		deadline = most
	}
	if err := r.SetReadDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var b [4096]byte
	n, err := r.Read(b[:])
	switch text := string(b[:n]); {
	case text == "ok":
		return nil
	case n > 0:
		return fmt.Errorf("start the supervisor: %s", strings.TrimSpace(text))
	default:
		return fmt.Errorf("start the supervisor: it says nothing: %w", err)
	}
}

// ownSession detaches a process from our terminal and process group, so that
// what ends us does not end it.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
