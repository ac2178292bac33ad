package duplex

import (
	"encoding/binary"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Command is what is to be run.
type Command struct {
	Command  []string  `json:"command"`
	Stdin    bool      `json:"stdin,omitempty"`    // input will come; else the command's input is empty
	Terminal *Terminal `json:"terminal,omitempty"` // the command gets a terminal, and all its output is stdout
}

// Terminal is the terminal that a command gets.
type Terminal struct {
	Size
	Term string `json:"term,omitempty"` // $TERM; default xterm
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Failure is sent for a command that could not be run to its end.
type Failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

// Bytes returns what a [Resize] holds.
func (s Size) Bytes() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Cols)
}

// SizeOf reads what a [Resize] holds.
func SizeOf(b []byte) (Size, error) {
	if len(b) != 4 {
		return Size{}, fmt.Errorf("%w: a size of %d bytes", ErrFrame, len(b))
	}
	return Size{Rows: binary.BigEndian.Uint16(b), Cols: binary.BigEndian.Uint16(b[2:])}, nil
}
