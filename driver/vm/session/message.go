package session

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Kind is the kind of data that a stream carries.
type Kind string

// The kinds of streams.
const (
	Control Kind = "control"
	Stdin   Kind = "stdin"
	Stdout  Kind = "stdout"
	Stderr  Kind = "stderr"
	Sync    Kind = "sync" // carries no data; the guest closes it once it has flushed the volumes' data to their disks
)

// Open is the first message on a stream. Session is the same for all streams of a session.
type Open struct {
	Session string `json:"session"`
	Kind    Kind   `json:"kind"`
}

// Program is a program to run.
type Program struct {
	Args     []string `json:"args"`
	Terminal bool     `json:"terminal,omitempty"` // stdin and stdout are a terminal, and there is no stderr
	Term     string   `json:"term,omitempty"`     // overrides $TERM
	Size     Size     `json:"size,omitzero"`      // size of the terminal
	Stdin    bool     `json:"stdin,omitempty"`    // if false, stdin is empty
	First    *First   `json:"first,omitempty"`    // only for the guest's first program; when that program exits, the machine ends
}

// First contains the settings that all of the guest's programs share. The host sends it with the
// first program.
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

// Boot contains the settings that the guest applies before it starts its first program.
type Boot struct {
	Hostname  string    `json:"hostname"`
	ReadOnly  bool      `json:"read_only,omitempty"` // whether the root file system is read-only
	Volumes   []Volume  `json:"volumes,omitempty"`
	Files     []File    `json:"files,omitempty"`
	Addresses []string  `json:"addresses,omitempty"` // of eth0, as CIDR prefixes; if there are none, the guest has no network
	MTU       int       `json:"mtu,omitempty"`
	Gateways  []Gateway `json:"gateways,omitempty"`
	OpenFiles [2]uint64 `json:"open_files"`          // soft and hard limit on open files
	Processes int       `json:"processes,omitempty"` // maximum number of the programs' processes and threads; 0 for no limit
	Entropy   []byte    `json:"entropy"`             // seed for the guest's random numbers
}

// Volume is a disk with an ext4 file system, which the guest mounts at Path.
type Volume struct {
	Serial string `json:"serial"` // serial number of the disk
	Path   string `json:"path"`
}

// File is a file that the guest writes before it starts its first program.
type File struct {
	Path   string `json:"path"`
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode"`
	Memory bool   `json:"memory,omitempty"` // the file is on a tmpfs, and programs can only read it
}

// Gateway is a default route. MAC is the gateway's hardware address, so the guest does not have to
// look it up.
type Gateway struct {
	Address string `json:"address"`
	MAC     string `json:"mac"`
}

// Order is a message from the host about a running program. The guest acts on all fields that are
// set.
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

// Report is a message from the guest about a program. In the first report of a session, Started or
// Error is set. If the program was started, a second report follows, in which Exit is set.
type Report struct {
	Started bool   `json:"started,omitempty"`
	Exit    *Exit  `json:"exit,omitempty"`
	Error   string `json:"error,omitempty"`   // why the program was not started
	Invalid bool   `json:"invalid,omitempty"` // whether the order caused the error
	Retry   bool   `json:"retry,omitempty"`   // whether another attempt to resume the machine may succeed
}

// Exit describes how a program ended.
type Exit struct {
	Code        int  `json:"code"`                    // the exit code, or 128 plus the number of the signal that killed the program
	OutOfMemory bool `json:"out_of_memory,omitempty"` // whether the guest has killed processes because it was out of memory
}

// maxMessage is the maximum size of a message in bytes. The largest messages are Programs with many
// files.
const maxMessage = 64 << 20

// Write writes a message.
func Write(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(data) > maxMessage {
		return fmt.Errorf("message to the virtual machine is %d bytes long; the maximum is %d", len(data), maxMessage)
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
		return fmt.Errorf("message is %d bytes long; the maximum is %d", n, limit)
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

// Limits to pass to Read.
const (
	MaxProgram = maxMessage // for a Program
	MaxShort   = 64 << 10   // for all other messages
)
