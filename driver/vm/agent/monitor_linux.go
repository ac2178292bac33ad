package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// monitor is a connection to qemu's monitor (QMP). A guest that has taken over qemu may send arbitrary replies.
type monitor struct {
	conn    *net.UnixConn
	lines   *bufio.Scanner
	version string // qemu's version, as JSON
}

const (
	monitorTimeout = 30 * time.Second // time limit for an answer
	maxLine        = 64 << 10
)

// reply is a message from qemu: its greeting, a result, an error or an event.
type reply struct {
	QMP    *struct{ Version json.RawMessage }
	Return json.RawMessage
	Error  *struct{ Desc string }
}

// newMonitor waits for the greeting of a newly started qemu, and returns a monitor that is ready for commands.
func newMonitor(conn *net.UnixConn) (*monitor, error) {
	m := &monitor{conn: conn, lines: newLines(conn)}
	if err := conn.SetDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return nil, err
	}
	greeting, err := next(m.lines)
	if err != nil {
		return nil, err
	}
	if greeting.QMP == nil {
		return nil, errors.New("qemu's monitor did not send a greeting")
	}
	m.version = string(greeting.QMP.Version)
	return m, m.run("qmp_capabilities", nil, nil)
}

func newLines(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	return lines
}

// next returns the next message.
func next(lines *bufio.Scanner) (r reply, err error) {
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return r, fmt.Errorf("read from qemu's monitor: %w", err)
		}
		return r, errors.New("qemu closed its monitor connection")
	}
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		return r, fmt.Errorf("read from qemu's monitor: %w", err)
	}
	return r, nil
}

// run executes a command and passes files to qemu. Unless result is nil, it decodes the command's result into
// it.
func (m *monitor) run(command string, arguments map[string]any, result any, files ...*os.File) error {
	message := map[string]any{"execute": command}
	if arguments != nil {
		message["arguments"] = arguments
	}
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if err := m.conn.SetDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return err
	}
	var rights []byte
	for _, f := range files {
		rights = append(rights, unix.UnixRights(int(f.Fd()))...)
	}
	if _, _, err := m.conn.WriteMsgUnix(append(data, '\n'), rights, nil); err != nil {
		return fmt.Errorf("qemu: %s: %w", command, err)
	}
	for {
		r, err := next(m.lines)
		switch {
		case err != nil:
			return fmt.Errorf("qemu: %s: %w", command, err)
		case r.Error != nil:
			return fmt.Errorf("qemu: %s: %s", command, r.Error.Desc)
		case r.Return != nil && result != nil:
			return json.Unmarshal(r.Return, result)
		case r.Return != nil:
			return nil
		}
	}
}

// await repeats a query until done returns true for the status in qemu's reply. It returns an error if that takes
// longer than monitorTimeout.
func (m *monitor) await(query string, done func(status string) bool) error {
	for deadline := time.Now().Add(monitorTimeout); ; time.Sleep(5 * time.Millisecond) {
		var r struct{ Status string }
		if err := m.run(query, nil, &r); err != nil || done(r.Status) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("qemu: %s: the status is still %q", query, r.Status)
		}
	}
}
