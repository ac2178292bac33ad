package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/internal/companion"
)

var errVersion = errors.New("the running keeper belongs to another release")

// connectOrSpawn connects to the keeper's process, starting it if necessary, and sends the hello.
func (k *Keeper) connectOrSpawn(ctx context.Context, l layout) (*net.UnixConn, error) {
	conn, err := k.dial(ctx, l)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	r := new(reply)
	hello := &request{Op: opHello, Version: protocolVersion, Settings: settings{Bytes: k.cfg.Bytes, Files: k.cfg.Files}}
	if err = companion.WriteFrame(conn, hello); err == nil {
		err = companion.ReadFrame(bufio.NewReader(conn), r)
	}
	k.mu.Lock()
	k.pid = r.PID
	k.mu.Unlock()
	if err == nil && r.Version != protocolVersion {
		err = fmt.Errorf("%w: process %d uses protocol version %d, this daemon uses %d", errVersion, r.PID, r.Version, protocolVersion)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// dial connects to the keeper's process, starting it if necessary. If a process is already starting
// or exiting, dial waits for it.
func (k *Keeper) dial(ctx context.Context, l layout) (*net.UnixConn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, maxRetryDelay) {
		conn, err := companion.Dial(ctx, l.run())
		if err == nil {
			return conn, nil
		}
		free, lockErr := companion.LockFree(l.lock())
		if free {
			lockErr = k.spawn(ctx, l)
		}
		if lockErr != nil {
			return nil, lockErr
		}
		if free {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// spawn starts the keeper's process, which outlives this daemon.
func (k *Keeper) spawn(ctx context.Context, l layout) error {
	command := k.cfg.Command
	if len(command) > 0 {
		command = slices.Concat(command, []string{l.dir})
	}
	p, err := companion.Spawn(ctx, command, l.log())
	if p != nil {
		k.mu.Lock()
		before := k.child
		k.child = p
		k.mu.Unlock()
		if before != nil {
			_, _ = before.Wait() // the earlier child failed to start, or exited so that this one can start
		}
	}
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	return nil
}

// endProcess terminates the keeper's process that uses the directory, even if the process belongs
// to another release.
func endProcess(ctx context.Context, l layout) error {
	conn, err := companion.Dial(ctx, l.run())
	if err != nil {
		if free, lockErr := companion.LockFree(l.lock()); free && lockErr == nil {
			return nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			return err
		}
		return companion.AwaitEnd(ctx, l.lock()) // the process is already exiting
	}
	defer conn.Close()
	if err := companion.WriteFrame(conn, &request{Op: opEnd}); err != nil {
		return err
	}
	return companion.AwaitEnd(ctx, l.lock())
}
