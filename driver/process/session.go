package process

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

// session is a daemon's connection. The supervisor has at most one session. A new session
// disconnects the previous session and waits until all of that session's requests have been
// handled. If it did not wait, a late request from a dead daemon could undo an effect that the new
// daemon has already observed.
type session struct {
	conn   *net.UnixConn
	cancel context.CancelFunc
	work   sync.WaitGroup // requests in progress
	slots  chan struct{}  // limits the number of requests in progress
	read   chan struct{}  // closed when the session has stopped reading requests

	writing sync.Mutex

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc // functions that cancel the requests in progress, by request id
}

// Limits of a connection.
const (
	helloTimeout = 5 * time.Second
	readTimeout  = time.Second      // for reading the remaining requests of a replaced daemon
	sendTimeout  = 10 * time.Second // a daemon that does not read for this long is considered dead
	maxRequests  = 16384            // including followed logs and stops in progress
)

// accept serves connections until ctx is done.
func (s *supervisor) accept(ctx context.Context, l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("accept connection failed", "err", err)
			time.Sleep(10 * time.Millisecond) // probably out of file descriptors
			continue
		}
		s.work.Go(func() {
			defer conn.Close()
			// When the supervisor is about to exit, disconnect clients, so that they do not delay
			// the exit.
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			if err := s.serveConn(ctx, conn); err != nil && ctx.Err() == nil {
				s.log.Info("connection ended", "err", err)
			}
		})
	}
}

// serveConn serves a connection according to its first frame, which is either an exec request or a
// daemon's hello.
func (s *supervisor) serveConn(ctx context.Context, conn *net.UnixConn) error {
	if err := companion.CheckPeer(conn); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	head, files, err := readHead(conn)
	defer func() { closeAll(files) }()
	if err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	var first request
	if err := companion.ReadBody(in, head, &first); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	switch {
	case first.Op == opExec:
		theirs := files
		files = nil
		return s.serveExec(ctx, conn, &first, theirs)
	case first.Op == opHello && first.Hello != nil:
		return s.serveDaemon(ctx, conn, in, &first)
	}
	return bourse.Errorf(bourse.CodeInvalid, "invalid first frame %s", bourse.Quoted(string(first.Op)))
}

// readHead reads the length of the first frame and the descriptors sent with it. The caller must
// close the descriptors, even after an error.
func readHead(conn *net.UnixConn) (length uint32, files []int, err error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(head[:], oob)
	if oobn > 0 {
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return 0, nil, err
		}
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err == nil {
				files = append(files, fds...)
			}
		}
		for _, fd := range files {
			syscall.CloseOnExec(fd)
		}
	}
	if err != nil {
		return 0, files, err
	}
	if n < len(head) {
		if _, err := io.ReadFull(conn, head[n:]); err != nil {
			return 0, files, err
		}
	}
	return binary.BigEndian.Uint32(head[:]), files, nil
}

func closeAll(files []int) {
	for _, fd := range files {
		_ = syscall.Close(fd)
	}
}

// serveDaemon serves a daemon's connection, which replaces the previous daemon's connection.
func (s *supervisor) serveDaemon(ctx context.Context, conn *net.UnixConn, in *bufio.Reader, first *request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	me := &session{conn: conn, cancel: cancel, slots: make(chan struct{}, maxRequests), read: make(chan struct{}), cancels: map[uint64]context.CancelFunc{}}
	answer := &reply{ID: first.ID, Hello: &helloReply{Version: protocolVersion, PID: os.Getpid()}}
	if first.Hello.Version != protocolVersion {
		// Send only the version to a daemon with another protocol version, which then reports the
		// mismatch. The tasks and the connection to the current daemon are not affected.
		me.send(answer)
		return nil
	}
	if !s.setSession(me, first.Hello.Settings) {
		return nil // the daemon will try again, and find or start another supervisor
	}
	defer s.endSession(me)
	defer close(me.read)
	// Kill leftover processes of the previous supervisor's tasks. They are found by their mark;
	// processes of this supervisor's running tasks are not killed.
	me.work.Go(s.killLeftovers)
	answer.Hello.Labels = s.grouping().Labels()
	me.send(answer)
	for {
		req := new(request)
		if err := companion.ReadFrame(in, req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if req.Op == opCancel { // handled here because it must precede later requests and is fast
			me.cancelCall(req.ID)
			continue
		}
		select {
		case me.slots <- struct{}{}:
		default:
			me.send(&reply{ID: req.ID, Error: &companion.Error{Code: bourse.CodeUnavailable, Message: "too many requests in progress"}})
			continue
		}
		s.dispatch(ctx, me, req)
	}
}

// dispatch handles a request in a new goroutine.
func (s *supervisor) dispatch(ctx context.Context, me *session, req *request) {
	ctx, done := me.begin(ctx, req.ID)
	me.work.Add(1)
	go func() {
		defer func() { done(); <-me.slots; me.work.Done() }()
		s.handle(ctx, me, req)
	}()
}

// begin makes a request cancelable until done is called.
func (me *session) begin(ctx context.Context, id uint64) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	me.mu.Lock()
	defer me.mu.Unlock()
	me.cancels[id] = cancel
	return ctx, func() {
		cancel()
		me.mu.Lock()
		defer me.mu.Unlock()
		delete(me.cancels, id)
	}
}

func (me *session) cancelCall(id uint64) {
	me.mu.Lock()
	defer me.mu.Unlock()
	if cancel := me.cancels[id]; cancel != nil {
		cancel()
	}
}

// setSession disconnects the previous session, if there is one, and installs the session me in its
// place. It returns false if the supervisor is shutting down.
func (s *supervisor) setSession(me *session, settings settings) bool {
	for {
		s.mu.Lock()
		if s.stopping {
			s.mu.Unlock()
			return false
		}
		before := s.session
		if before == nil {
			s.session, s.settings = me, settings
			s.mu.Unlock()
			return true
		}
		s.session = nil
		s.mu.Unlock()
		before.send(&reply{Replaced: true})
		// Before the new session starts, finish the requests that the previous daemon has already
		// sent. A request that was handled later could undo an effect that the new daemon has
		// already observed. CloseRead prevents the previous daemon from sending any more requests.
		_ = before.conn.CloseRead()
		select {
		case <-before.read:
		case <-time.After(readTimeout): // the session's reader is blocked in a write to a daemon that does not read
		}
		before.close()
		before.work.Wait()
	}
}

// endSession closes a session. If the session is still the current one, endSession also clears
// s.session.
func (s *supervisor) endSession(me *session) {
	me.close()
	me.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == me {
		s.session = nil
	}
	s.wakeUp()
}

func (me *session) close() {
	me.cancel()
	_ = me.conn.Close()
}

// send writes a frame. If that fails, it closes the connection, which ends the session.
func (me *session) send(r *reply) {
	me.writing.Lock()
	defer me.writing.Unlock()
	_ = me.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err := companion.WriteFrame(me.conn, r); err != nil {
		_ = me.conn.Close()
	}
}

// handle executes a request and sends the answer.
func (s *supervisor) handle(ctx context.Context, me *session, req *request) {
	answer := &reply{ID: req.ID}
	var err error
	switch req.Op {
	case opStart:
		answer.Status, err = s.handleStart(req.Start)
	case opSignal:
		err = s.signal(req.Task, syscall.Signal(req.Signal))
	case opStop:
		var t *task
		if t, err = s.find(req.Task); err == nil {
			err = s.stop(ctx, t, syscall.Signal(req.Signal), req.Timeout)
		}
	case opFreeze:
		err = s.freeze(ctx, req.Task, req.Frozen)
	case opUsage:
		answer.Usage, err = s.usage(req.Task)
	case opForget:
		s.forget(req.Task)
	case opDestroy:
		err = s.destroy(ctx, req.Machine)
	case opHold:
		s.storeExits(req.Hold)
	case opWatch:
		err = s.watch(ctx, req.Machine, func() { me.send(&reply{ID: req.ID, More: true}) })
	case opList:
		s.sendList(me, req.ID)
		return
	case opShutdown:
		// The other requests in progress are not answered; closing the connection ends them.
		me.send(answer)
		s.work.Go(func() { s.endAll(context.WithoutCancel(ctx)) })
		return
	default:
		err = bourse.Errorf(bourse.CodeInvalid, "unknown operation %s", bourse.Quoted(string(req.Op)))
	}
	answer.Error = companion.ErrorOf(err)
	me.send(answer)
}

func (s *supervisor) handleStart(sp *spec) (*driver.Status, error) {
	if sp == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "start request without a task")
	}
	status, err := s.start(sp)
	return &status, err
}

func (s *supervisor) sendList(me *session, id uint64) {
	list := s.list()
	for len(list) > listChunk {
		me.send(&reply{ID: id, List: list[:listChunk], More: true})
		list = list[listChunk:]
	}
	me.send(&reply{ID: id, List: list})
}
