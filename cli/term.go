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
	Dumb  bool // of a terminal: its cursor cannot be moved
	Width int  // of a terminal, in characters; 0 when it is none
	Color bool // colours are wanted there

	Look func() (width, height int) // how large it is now; nil: of fixed width, and of any height
	Raw  func() (func(), error)     // takes it as it is, key by key, until the function that it returns is called; nil: it is no terminal
}

// NewStream looks at what a file is. A terminal that says that it is dumb gets
// text alone, and so does one whose user wants no colours (no-color.org).
func NewStream(f *os.File, getenv func(string) string) Stream {
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
	dumb := getenv("TERM") == "dumb"
	return Stream{
		ReadWriter: f, TTY: true, Dumb: dumb, Color: !dumb && getenv("NO_COLOR") == "", Width: int(size.Col), Look: look, Raw: raw,
	}
}

// Size returns how large the terminal is now, in characters. 0 means that there
// is no bound.
func (s Stream) Size() (width, height int) {
	if s.Look == nil {
		return s.Width, 0
	}
	return s.Look()
}
