package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// remoteCommand is a command that runs elsewhere, its streams here.
type remoteCommand interface {
	io.Writer // its input
	CloseWrite() error
	Resize(size machinesapi.TerminalSize) error
	Copy(stdout, stderr io.Writer) (bourse.Exit, error)
	Close() error
}

// attachment says how a command's streams are tied to ours.
type attachment struct {
	stdin    bool // ours is its input
	terminal bool // it gets a terminal
	open     func(context.Context, machinesapi.ExecStart) (remoteCommand, error)
}

// attach runs a command with our streams as its own until it has ended, and
// ends with its status. Our terminal is taken key by key meanwhile, so that
// Ctrl-C is the command's and not ours, and is left as it was.
func (s *shell) attach(ctx context.Context, a attachment) error {
	if a.terminal && !s.Out.TTY {
		return bourse.Errorf(bourse.CodeInvalid, "--tty: standard output is no terminal")
	}
	start := machinesapi.ExecStart{Stdin: a.stdin}
	if a.terminal {
		start.Terminal = &machinesapi.Terminal{Size: s.terminalSize(), Term: s.Getenv("TERM")}
	}
	command, err := a.open(ctx, start)
	if err != nil {
		return err
	}
	defer command.Close()
	if a.terminal && a.stdin && s.In.raw != nil {
		restore, err := s.In.raw()
		if err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "--tty: %w", err)
		}
		defer restore()
	}
	stop := s.followSize(a.terminal, command)
	defer stop()
	if a.stdin {
		go s.feed(command) // nothing ends a read from a terminal but the program's end
	}
	exit, err := command.Copy(s.Out, s.Err)
	if err != nil {
		return err
	}
	return exitStatus(&exit)
}

// feed passes standard input on until it ends.
func (s *shell) feed(command remoteCommand) {
	_, err := io.Copy(command, s.In)
	if err == nil || !errors.Is(err, io.ErrClosedPipe) {
		_ = command.CloseWrite() // fails when the command has ended, which Copy tells
	}
}

func (s *shell) terminalSize() machinesapi.TerminalSize {
	width, height := s.Out.size()
	if width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return machinesapi.TerminalSize{Rows: uint16(min(height, 1<<16-1)), Cols: uint16(min(width, 1<<16-1))}
}

// followSize tells the command whenever our terminal has another size, until
// the function that it gives is called.
func (s *shell) followSize(terminal bool, command remoteCommand) (stop func()) {
	if !terminal {
		return func() {}
	}
	changed, end := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	var following sync.WaitGroup
	following.Go(func() {
		for {
			select {
			case <-changed:
				if command.Resize(s.terminalSize()) != nil {
					return // it has ended
				}
			case <-end:
				return
			}
		}
	})
	return func() {
		signal.Stop(changed)
		close(end)
		_ = command.Close() // a resize that nobody reads
		following.Wait()
	}
}
