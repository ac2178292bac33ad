package process

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

// protocolVersion is the version of this release's protocol. The hello and its answer are the same in all
// versions, so that any two releases can exchange their versions.
const protocolVersion = 1

// listChunk is the maximum number of statuses in one frame of an answer.
const listChunk = 500

// op is the operation of a request.
type op string

const (
	opHello    op = "hello"    // first request on the daemon's connection; replaces the previous session
	opExec     op = "exec"     // first and only request on a separate connection
	opList     op = "list"     // list all tasks; the answer may consist of several frames
	opHold     op = "hold"     // store these exits of an earlier supervisor's tasks
	opStart    op = "start"    //
	opSignal   op = "signal"   //
	opStop     op = "stop"     //
	opForget   op = "forget"   //
	opDestroy  op = "destroy"  //
	opFreeze   op = "freeze"   //
	opUsage    op = "usage"    //
	opWatch    op = "watch"    // answered with a frame immediately, and again whenever there are new lines in a log, until the machine is destroyed
	opCancel   op = "cancel"   // cancel the request with this ID; not answered
	opShutdown op = "shutdown" // stop all tasks, remove everything, and exit
)

// request is a frame from the daemon. The fields in use depend on Op.
type request struct {
	ID       uint64           `json:"id"`
	Op       op               `json:"op"`
	Hello    *hello           `json:"hello,omitempty"`
	Start    *spec            `json:"start,omitempty"`
	Task     driver.TaskID    `json:"task,omitzero"`
	Machine  bourse.MachineID `json:"machine,omitempty"`
	Signal   int              `json:"signal,omitempty"`
	Timeout  time.Duration    `json:"timeout,omitempty"`
	Frozen   bool             `json:"frozen,omitempty"`   // for opFreeze: the desired state
	Command  [][]byte         `json:"command,omitempty"`  // for opExec
	Terminal bool             `json:"terminal,omitempty"` // for opExec: whether the command's files are a terminal
	Term     string           `json:"term,omitempty"`     // for opExec with a terminal: $TERM
	Hold     []driver.Status  `json:"hold,omitempty"`
}

// reply is a frame from the supervisor. A reply with ID 0 reports the end of a task; any other
// reply answers the request with the same ID.
type reply struct {
	ID       uint64           `json:"id,omitempty"`
	Error    *companion.Error `json:"error,omitempty"`
	Hello    *helloReply      `json:"hello,omitempty"`
	Status   *driver.Status   `json:"status,omitempty"`
	List     []driver.Status  `json:"list,omitempty"`
	Usage    *driver.Usage    `json:"usage,omitempty"`
	More     bool             `json:"more,omitempty"`     // whether another frame of this answer follows
	Exit     *bourse.Exit     `json:"exit,omitempty"`     // for opExec
	Replaced bool             `json:"replaced,omitempty"` // another daemon has connected, so the receiver must not reconnect
}

// hello is the content of the first frame on a daemon's connection.
type hello struct {
	Version  int      `json:"version"`
	Settings settings `json:"settings"`
}

// settings are the settings that a daemon sends with each hello, so that a restarted daemon can change the settings of
// a running supervisor. They apply to tasks that are started after the hello.
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

// spec describes a task to the supervisor. Strings are encoded as byte slices, because JSON would alter invalid UTF-8.
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

// identity is the user and groups that a task runs as.
type identity struct {
	Name   string   `json:"name"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}
