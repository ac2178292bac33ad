package direct

import "runtime"

const (
	maxBacklog = 1 << 20  // bytes that wait to be written; then others use another way, or wait
	maxSpare   = 64 << 10 // bytes of a buffer whose memory is kept
)

// pending is what waits to be written to a connection, under its lock.
type pending struct {
	buf     []byte
	spare   []byte // memory for the next
	writing bool   // a goroutine writes until buf is empty
	written uint64 // bytes that were given to the connection, ever
}

// elect reports whether the caller has to write.
func (p *pending) elect() bool {
	mine := !p.writing
	p.writing = true
	return mine
}

// take returns what is to be written next, or nothing: then no one writes any
// more. done is what has been written, whose memory is reused.
func (p *pending) take(done []byte) []byte {
	if cap(done) > 0 && cap(done) <= maxSpare {
		p.spare = done[:0]
	}
	p.writing = len(p.buf) > 0
	if !p.writing {
		return nil
	}
	b := p.buf
	p.buf, p.spare = p.spare, nil
	p.written += uint64(len(b))
	return b
}

// yield lets others that are ready queue theirs first: a system call for
// each is most of what a call costs under load.
func yield() { runtime.Gosched() }
