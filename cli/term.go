package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Stream is one of the command's three standard streams.
type Stream struct {
	io.ReadWriter
	TTY   bool // a person sits at the other end
	Width int  // of a terminal, in characters; 0 when it is none
}

// NewStream looks at what a file is.
func NewStream(f *os.File) Stream {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Stream{ReadWriter: f}
	}
	return Stream{ReadWriter: f, TTY: true, Width: int(size.Col)}
}
