package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Stream is one of the command's three standard streams.
type Stream struct {
	io.ReadWriter
	TTY   bool // a person sits at the other end
	Width int  // of a terminal, in characters; 0 when it is none

	look func() (width, height int) // how large it is just now; nil: of fixed width, and of any height
	raw  func() (func(), error)     // takes it as it is, key by key, until the function it gives is called; nil: it is no terminal
}

// NewStream looks at what a file is.
func NewStream(f *os.File) Stream {
	look := func() (int, int) {
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 0, 0
		}
		return int(size.Col), int(size.Row)
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Stream{ReadWriter: f}
	}
	raw := func() (func(), error) {
		was, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return nil, err
		}
		return func() { _ = term.Restore(int(f.Fd()), was) }, nil // what else could be tried
	}
	return Stream{ReadWriter: f, TTY: true, Width: int(size.Col), look: look, raw: raw}
}

// size gives how large the terminal is now, in characters. 0 means that there
// is no bound.
func (s Stream) size() (width, height int) {
	if s.look == nil {
		return s.Width, 0
	}
	return s.look()
}
