package machine

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
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

// attachment is how a command's streams are tied to ours.
type attachment struct {
	stdin    bool // ours is its input
	terminal bool // it gets a terminal
	open     func(context.Context, machinesapi.ExecStart) (remoteCommand, error)
}

// attach runs a command with our streams as its own until it has ended, and
// ends with its status. Our terminal is taken key by key meanwhile, so that
// Ctrl-C is the command's and not ours, and is left as it was.
func attach(ctx context.Context, s *cli.Shell, a attachment) error {
	if a.terminal && !s.Out.TTY {
		return bourse.Errorf(bourse.CodeInvalid, "--tty: standard output is no terminal")
	}
	start := machinesapi.ExecStart{Stdin: a.stdin}
	if a.terminal {
		start.Terminal = &machinesapi.Terminal{Size: terminalSize(s), Term: s.Getenv("TERM")}
	}
	command, err := a.open(ctx, start)
	if err != nil {
		return err
	}
	defer command.Close()
	if a.terminal && a.stdin && s.In.Raw != nil {
		restore, err := s.In.Raw()
		if err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "--tty: %w", err)
		}
		defer restore()
	}
	stop := followSize(s, a.terminal, command)
	defer stop()
	if a.stdin {
		go feed(s, command) // nothing ends a read from a terminal but the program's end
	}
	exit, err := command.Copy(s.Out, s.Err)
	if err != nil {
		return err
	}
	return exitStatus(&exit)
}

// feed passes standard input on until it ends.
func feed(s *cli.Shell, command remoteCommand) {
	_, err := io.Copy(command, s.In)
	if err == nil || !errors.Is(err, io.ErrClosedPipe) {
		_ = command.CloseWrite() // fails when the command has ended, which Copy reports
	}
}

func terminalSize(s *cli.Shell) machinesapi.TerminalSize {
	width, height := s.Out.Size()
	if width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return machinesapi.TerminalSize{Rows: uint16(min(height, 1<<16-1)), Cols: uint16(min(width, 1<<16-1))}
}

// followSize sends the command each new size of our terminal, until the
// function that it returns is called.
func followSize(s *cli.Shell, terminal bool, command remoteCommand) (stop func()) {
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
				if command.Resize(terminalSize(s)) != nil {
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
		_ = command.Close() // a resize that is not read
		following.Wait()
	}
}
