package session

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Kind says what a stream carries.
type Kind string

// The kinds of streams.
const (
	Control Kind = "control"
	Stdin   Kind = "stdin"
	Stdout  Kind = "stdout"
	Stderr  Kind = "stderr"
	Sync    Kind = "sync" // carries nothing; the guest closes it when the volumes' data is on their disks
)

// Open is the first message on a stream.
type Open struct {
	Session string `json:"session"`
	Kind    Kind   `json:"kind"`
}

// Program is a program to run.
type Program struct {
	Args     []string `json:"args"`
	Terminal bool     `json:"terminal,omitempty"` // stdin and stdout are a terminal, and there is no stderr
	Term     string   `json:"term,omitempty"`     // overrides $TERM
	Size     Size     `json:"size,omitzero"`      // the terminal's
	Stdin    bool     `json:"stdin,omitempty"`    // if false, stdin is empty
	First    *First   `json:"first,omitempty"`    // only for the first program, with which the machine ends
}

// First is the context of the guest's first program. Later programs run in the same context.
type First struct {
	Boot    Boot     `json:"boot"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
	MakeDir bool     `json:"make_dir,omitempty"` // create Dir if it does not exist
	UID     uint32   `json:"uid"`
	GID     uint32   `json:"gid"`
	Groups  []uint32 `json:"groups,omitempty"`
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Boot is what the guest sets up before its first program.
type Boot struct {
	Hostname  string    `json:"hostname"`
	ReadOnly  bool      `json:"read_only,omitempty"` // the root file system
	Volumes   []Volume  `json:"volumes,omitempty"`
	Files     []File    `json:"files,omitempty"`
	Addresses []string  `json:"addresses,omitempty"` // of eth0, as CIDR prefixes; none: the guest has no network
	MTU       int       `json:"mtu,omitempty"`
	Gateways  []Gateway `json:"gateways,omitempty"`
	OpenFiles [2]uint64 `json:"open_files"`          // soft and hard limit of open files
	Processes int       `json:"processes,omitempty"` // maximum number of the programs' processes and threads; 0 for no limit
	Entropy   []byte    `json:"entropy"`             // seed for the guest's random numbers
}

// Volume is an ext4 file system on a disk of its own, which the guest mounts.
type Volume struct {
	Serial string `json:"serial"` // of the disk
	Path   string `json:"path"`
}

// File is a file that the guest writes before it starts its first program.
type File struct {
	Path   string `json:"path"`
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode"`
	Memory bool   `json:"memory,omitempty"` // the file is on a tmpfs, and programs can only read it
}

// Gateway is a default route, with the gateway's fixed hardware address.
type Gateway struct {
	Address string `json:"address"`
	MAC     string `json:"mac"`
}

// Order is a message from the host to a running program.
type Order struct {
	Signal  int      `json:"signal,omitempty"`
	Size    Size     `json:"size,omitzero"`
	Resumed *Resumed `json:"resumed,omitempty"`
}

// Resumed notifies the guest that it has been restored from a snapshot.
type Resumed struct {
	Time    time.Time `json:"time"`
	Entropy []byte    `json:"entropy"` // new seed for the guest's random numbers
}

// Report is a message from the guest about a program. The first one has Started or Error set. After a
// program that was started, there is another one with Exit.
type Report struct {
	Started bool   `json:"started,omitempty"`
	Exit    *Exit  `json:"exit,omitempty"`
	Error   string `json:"error,omitempty"`   // why the program was not started
	Invalid bool   `json:"invalid,omitempty"` // whether the error is the order's fault
	Retry   bool   `json:"retry,omitempty"`   // whether a machine that was not resumed can still be resumed
}

// Exit is the end of a program.
type Exit struct {
	Code        int  `json:"code"`                    // or 128 plus the number of the signal that killed the program
	OutOfMemory bool `json:"out_of_memory,omitempty"` // whether the guest has killed processes because it was out of memory
}

// maxMessage is the maximum size of a message. Programs with many files are the largest.
const maxMessage = 64 << 20

// Write writes a message.
func Write(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(data) > maxMessage {
		return fmt.Errorf("a message of %d bytes to the virtual machine exceeds the limit of %d", len(data), maxMessage)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	return err
}

// Read reads a message of at most limit bytes.
func Read(r io.Reader, limit int, message any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if int64(n) > int64(limit) {
		return fmt.Errorf("a message of %d bytes exceeds the limit of %d", n, limit)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(data) < int(n) {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(data, message); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// Limits of messages that Read's callers pass.
const (
	MaxProgram = maxMessage
	MaxShort   = 64 << 10 // for all other messages
)
