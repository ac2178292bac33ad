package duplex

import (
	"encoding/binary"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Command describes the command to run.
type Command struct {
	Command  []string  `json:"command"`
	Stdin    bool      `json:"stdin,omitempty"`    // whether the caller sends input; if not, the command's input is empty
	Terminal *Terminal `json:"terminal,omitempty"` // run the command in a terminal; all output is then stdout
}

// Terminal is a command's terminal.
type Terminal struct {
	Size
	Term string `json:"term,omitempty"` // $TERM; default xterm
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Failure reports why a command could not be started, or why it is unknown how the command exited.
type Failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

// Bytes returns the payload of a [Resize] frame.
func (s Size) Bytes() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Cols)
}

// SizeOf decodes the payload of a [Resize] frame.
func SizeOf(b []byte) (Size, error) {
	if len(b) != 4 {
		return Size{}, fmt.Errorf("%w: terminal size has %d bytes, want 4", ErrFrame, len(b))
	}
	return Size{Rows: binary.BigEndian.Uint16(b), Cols: binary.BigEndian.Uint16(b[2:])}, nil
}
