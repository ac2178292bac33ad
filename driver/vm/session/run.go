package session

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Stream is a stream between the host and the guest. CloseWrite closes only the direction from the caller
// to the other side.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Streams are the sources and destinations of a program's streams on the host.
type Streams struct {
	Stdin  io.Reader // used only if the program has Stdin set
	Stdout io.Writer
	Stderr io.Writer // unused if the program has a terminal
}

// StartError is the error that Run returns if the guest did not start the program.
type StartError struct {
	Text    string
	Invalid bool // whether the order caused the error
}

func (e *StartError) Error() string { return e.Text }

// Run runs a program in the guest and returns its exit. It calls dial to open each stream to the guest, and calls
// started once the program has started. It forwards messages from the channel orders to the guest until the channel is
// closed or the program exits. Run does not wait for a Stdin that blocks in Read. It returns a *StartError if the guest
// did not start the program.
func Run(dial func() (Stream, error), program Program, streams Streams, orders <-chan Order, started func()) (Exit, error) {
	r := &run{dial: dial, id: rand.Text()}
	defer r.close()
	control, err := r.open(Control)
	if err != nil {
		return Exit{}, err
	}
	if err := Write(control, program); err != nil {
		return Exit{}, err
	}
	if err := r.connect(program, streams); err != nil {
		return Exit{}, err
	}
	var report Report
	if err := Read(control, MaxShort, &report); err != nil {
		return Exit{}, fmt.Errorf("read the guest's answer: %w", err)
	}
	if !report.Started {
		return Exit{}, &StartError{report.Error, report.Invalid}
	}
	started()
	done := make(chan struct{})
	defer close(done)
	go forward(control, orders, done)
	if err := Read(control, MaxShort, &report); err != nil {
		return Exit{}, fmt.Errorf("read the program's exit status: %w", err)
	}
	if report.Exit == nil {
		return Exit{}, errors.New("the guest did not report the program's exit status")
	}
	r.outputs.Wait()
	return *report.Exit, nil
}

type run struct {
	dial    func() (Stream, error)
	id      string
	streams []Stream
	outputs sync.WaitGroup
}

// open opens a stream and assigns it to the session.
func (r *run) open(kind Kind) (Stream, error) {
	s, err := r.dial()
	if err != nil {
		return nil, fmt.Errorf("open a stream to the guest: %w", err)
	}
	r.streams = append(r.streams, s)
	return s, Write(s, Open{Session: r.id, Kind: kind})
}

// connect opens the program's other streams and starts copying data.
func (r *run) connect(program Program, streams Streams) error {
	if program.Stdin {
		s, err := r.open(Stdin)
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(s, streams.Stdin) // an error means that the program no longer reads
			_ = s.CloseWrite()
		}()
	}
	outputs := map[Kind]io.Writer{Stdout: streams.Stdout}
	if !program.Terminal {
		outputs[Stderr] = streams.Stderr
	}
	for kind, to := range outputs {
		s, err := r.open(kind)
		if err != nil {
			return err
		}
		r.outputs.Go(func() {
			if _, err := io.Copy(to, s); err != nil {
				_, _ = io.Copy(io.Discard, s) // so that the program is not blocked
			}
		})
	}
	return nil
}

func (r *run) close() {
	for _, s := range r.streams {
		_ = s.Close()
	}
}

// forward forwards orders to the guest until done or orders is closed, or a write fails.
func forward(control io.Writer, orders <-chan Order, done <-chan struct{}) {
	for {
		select {
		case o, ok := <-orders:
			if !ok || Write(control, o) != nil {
				return
			}
		case <-done:
			return
		}
	}
}
