package process

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/companion"
)

// protocolVersion is what this release speaks. The hello and its answer never
// change shape, so that releases can always tell each other their versions.
const protocolVersion = 1

// listChunk is how many statuses go into one frame of an answer.
const listChunk = 500

// op names what a daemon asks of its supervisor.
type op string

const (
	opHello    op = "hello"    // first on the daemon's connection: it replaces the session before
	opExec     op = "exec"     // first and only on a connection of its own
	opList     op = "list"     // every task held; several frames
	opHold     op = "hold"     // keep these exits, which an earlier supervisor lost
	opStart    op = "start"    //
	opSignal   op = "signal"   //
	opStop     op = "stop"     //
	opForget   op = "forget"   //
	opDestroy  op = "destroy"  //
	opFreeze   op = "freeze"   //
	opUsage    op = "usage"    //
	opWatch    op = "watch"    // a frame at once and whenever there is more in a log, until the machine is destroyed
	opCancel   op = "cancel"   // give the request with this ID up; has no answer of its own
	opShutdown op = "shutdown" // end and remove everything, then exit
)

// request is a frame from the daemon. Which fields are set depends on Op.
type request struct {
	ID       uint64           `json:"id"`
	Op       op               `json:"op"`
	Hello    *hello           `json:"hello,omitempty"`
	Start    *spec            `json:"start,omitempty"`
	Task     driver.TaskID    `json:"task,omitzero"`
	Machine  bourse.MachineID `json:"machine,omitempty"`
	Signal   int              `json:"signal,omitempty"`
	Timeout  time.Duration    `json:"timeout,omitempty"`
	Frozen   bool             `json:"frozen,omitempty"`   // of a freeze: what it is to be
	Command  [][]byte         `json:"command,omitempty"`  // of an exec
	Terminal bool             `json:"terminal,omitempty"` // of an exec: its files are one
	Term     string           `json:"term,omitempty"`     // $TERM with a terminal
	Hold     []driver.Status  `json:"hold,omitempty"`
}

// reply is a frame from the supervisor: the answer to the request with its
// ID, or with ID 0 news of a task that has ended.
type reply struct {
	ID       uint64           `json:"id,omitempty"`
	Error    *companion.Error `json:"error,omitempty"`
	Hello    *helloReply      `json:"hello,omitempty"`
	Status   *driver.Status   `json:"status,omitempty"`
	List     []driver.Status  `json:"list,omitempty"`
	Usage    *driver.Usage    `json:"usage,omitempty"`
	More     bool             `json:"more,omitempty"`     // another frame of this answer follows
	Exit     *bourse.Exit     `json:"exit,omitempty"`     // of an exec
	Replaced bool             `json:"replaced,omitempty"` // another daemon has connected: do not come back
}

// hello opens a daemon's connection.
type hello struct {
	Version  int      `json:"version"`
	Settings settings `json:"settings"`
}

// settings come with each hello, so that a restarted daemon can change them
// for a supervisor that has outlived the one before. They hold for tasks
// started from then on.
type settings struct {
	LogBytes int64 `json:"log_bytes"`
	LogFiles int   `json:"log_files"`
	NoLimits bool  `json:"no_limits,omitempty"`
}

type helloReply struct {
	Version int               `json:"version"`
	PID     int               `json:"pid"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// spec is a task as the supervisor starts it. Strings of the host are bytes,
// which JSON would not let through unharmed.
type spec struct {
	ID      driver.TaskID   `json:"id"`
	Command [][]byte        `json:"command"`
	Env     [][]byte        `json:"env,omitempty"`
	Dir     []byte          `json:"dir,omitempty"`
	User    *identity       `json:"user,omitempty"`
	Limits  driver.Limits   `json:"limits"`
	Network *driver.Network `json:"network,omitempty"`
	Mounts  []driver.Mount  `json:"mounts,omitempty"`
	Stdin   []byte          `json:"stdin,omitempty"`
}

// identity is a user that a task runs as.
type identity struct {
	Name   string   `json:"name"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}
