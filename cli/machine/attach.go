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

// remoteCommand is a command that runs on another host.
type remoteCommand interface {
	io.Writer // writes to the command's standard input
	CloseWrite() error
	Resize(size machinesapi.TerminalSize) error
	Copy(stdout, stderr io.Writer) (bourse.Exit, error)
	Close() error
}

// attachment describes how a remote command is connected to our standard streams.
type attachment struct {
	stdin    bool // whether to pass our standard input to the command
	terminal bool // whether to give the command a terminal
	open     func(context.Context, machinesapi.ExecStart) (remoteCommand, error)
}

// attach connects our standard streams to a remote command until it exits, and returns its
// exit status as an error. If the command has a terminal and reads standard input, our
// terminal is in raw mode until the command exits, so that keys such as Ctrl-C reach the
// command.
func attach(ctx context.Context, s *cli.Shell, a attachment) error {
	if a.terminal && !s.Out.TTY {
		return bourse.Errorf(bourse.CodeInvalid, "--tty: standard output is not a terminal")
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
		go feed(s, command) // runs until the process exits, because reading from a terminal cannot be canceled
	}
	exit, err := command.Copy(s.Out, s.Err)
	if err != nil {
		return err
	}
	return exitStatus(&exit)
}

// feed copies our standard input to the command until the end of the input.
func feed(s *cli.Shell, command remoteCommand) {
	_, err := io.Copy(command, s.In)
	if err == nil || !errors.Is(err, io.ErrClosedPipe) {
		_ = command.CloseWrite() // fails if the command has exited; Copy reports that
	}
}

func terminalSize(s *cli.Shell) machinesapi.TerminalSize {
	width, height := s.Out.Size()
	if width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return machinesapi.TerminalSize{Rows: uint16(min(height, 1<<16-1)), Cols: uint16(min(width, 1<<16-1))}
}

// followSize sends the size of our terminal to the command each time it changes, until stop
// is called.
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
					return // the command has exited
				}
			case <-end:
				return
			}
		}
	})
	return func() {
		signal.Stop(changed)
		close(end)
		_ = command.Close() // unblocks a pending resize
		following.Wait()
	}
}
