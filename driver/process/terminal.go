package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver"
)

// terminal implements Files for a command with a terminal. The daemon holds the master side, so the
// command receives SIGHUP if the daemon dies.
type terminal struct {
	screen      *os.File
	commandFile *os.File // the command's side, which is its stdin, stdout and stderr
	work        sync.WaitGroup
	done        chan struct{} // closed when the size can no longer change
}

func newTerminal(exec driver.Exec) (*terminal, error) {
	screen, given, err := openTerminal()
	if err != nil {
		return nil, err
	}
	e := &terminal{screen: screen, commandFile: given, done: make(chan struct{})}
	e.resize(exec.Terminal.Size)
	e.work.Go(func() { copyOutput(exec.Stdout, screen) })
	if exec.Terminal.Resize != nil {
		e.work.Go(func() {
			for {
				select {
				case size, ok := <-exec.Terminal.Resize:
					if !ok {
						return
					}
					e.resize(size)
				case <-e.done:
					return
				}
			}
		})
	}
	go e.feed(exec.Stdin)
	return e, nil
}

// openTerminal opens a terminal whose master side supports deadlines. The file from pty.Open does
// not support them, because it is blocking.
func openTerminal() (screen, given *os.File, err error) {
	blocking, given, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errors.Join(err, given.Close())
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, nil, errors.Join(err, given.Close(), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "screen"), given, nil
}

// resize sets the terminal's size. The kernel then notifies the command with SIGWINCH.
func (e *terminal) resize(size driver.Size) {
	raw, err := e.screen.SyscallConn()
	if err != nil {
		return // the terminal is closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

func (e *terminal) CommandFiles() [3]*os.File {
	return [3]*os.File{e.commandFile, e.commandFile, e.commandFile}
}

func (e *terminal) Sent() error { return e.commandFile.Close() }

func (e *terminal) Finish() (stdout, stderr []byte) {
	close(e.done)
	_ = e.screen.SetReadDeadline(time.Now().Add(Grace))
	e.work.Wait()
	_ = e.screen.Close()
	return nil, nil
}

// endOfInput is the character ^D. At the beginning of a line, it ends a terminal's input. Within a
// line, it only submits what has been typed so far.
const endOfInput = 4

// feed types the data from stdin into the terminal, followed by ^D. Nobody waits for feed to
// return, because a blocking Read cannot be interrupted.
func (e *terminal) feed(stdin io.Reader) {
	w := &terminalWriter{w: e.screen}
	if stdin != nil {
		if _, err := io.Copy(w, stdin); err != nil {
			return
		}
	}
	if w.inLine {
		_, _ = w.Write([]byte{endOfInput})
	}
	_, _ = w.Write([]byte{endOfInput})
}

// terminalWriter writes to a terminal and tracks whether the last line is incomplete.
type terminalWriter struct {
	w      io.Writer
	inLine bool
}

func (t *terminalWriter) Write(b []byte) (int, error) {
	if len(b) > 0 {
		last := b[len(b)-1]
		t.inLine = last != '\n' && last != '\r' && last != endOfInput
	}
	return t.w.Write(b)
}
