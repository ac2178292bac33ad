package nats

import (
	"runtime"
	"sync"

	"github.com/bourse-dev/bourse/fabric"
)

// letter is a message of a call.
type letter struct {
	to, reply string
	data      []byte
	call      *call         // that it begins; nil: none
	held      *fabric.Held  // the answer that it is, in place of data; nil: none
	left      chan struct{} // closed when all before it have left; nil: no one waits
}

// outbox sends messages that are ready at about the same time together: a
// system call of ours and one of the NATS server for each is most of what a
// call costs under load. They leave in the order in which they came, from a
// goroutine of their own: NATS may block, and callers have deadlines.
type outbox struct {
	wake chan struct{} // buffered
	stop chan struct{} // closed to end the goroutine
	done chan struct{} // closed when it has ended

	mu      sync.Mutex // taken under no other lock
	letters []letter
	spare   []letter // memory for the next ones
	busy    bool     // the goroutine is at work, or was woken
}

// post sends a message, soon. It does not block.
func (l *Link) post(m letter) {
	o := &l.out
	o.mu.Lock()
	o.letters = append(o.letters, m)
	idle := !o.busy
	o.busy = true
	o.mu.Unlock()
	if idle {
		o.wake <- struct{}{}
	}
}

// sendPosts sends what is posted until it is stopped.
func (l *Link) sendPosts() {
	o := &l.out
	defer close(o.done)
	for {
		select {
		case <-o.wake:
		case <-o.stop:
			return
		}
		runtime.Gosched() // others who are ready now come to post theirs
		for batch := o.take(nil); len(batch) > 0; batch = o.take(batch) {
			for i := range batch {
				l.mail(&batch[i])
			}
			clear(batch)
		}
	}
}

// take returns what is to be sent, or nothing: then no one sends any more. sent
// is what has been sent, whose memory is reused.
func (o *outbox) take(sent []letter) []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	if sent != nil {
		o.spare = sent[:0]
	}
	batch := o.letters
	o.letters, o.spare = o.spare, nil
	o.busy = len(batch) > 0
	return batch
}

// mail passes a message to NATS, and notifies its call if that fails.
func (l *Link) mail(m *letter) {
	switch {
	case m.left != nil:
		close(m.left)
	case m.held != nil:
		l.reply(m.to, m.held)
		m.held.Release()
	case m.call != nil && m.call.over.Load(): // no one waits any more
	case m.call != nil:
		err := l.send(m.to, m.reply, m.data)
		m.call.sent.Store(err == nil)
		if err != nil {
			l.end(m.call, sendError{err})
		}
	default:
		_ = l.nats.Publish(m.to, m.data) // down: the other end sees that, too; else a roll shows it
	}
}

// endPosts ends the goroutine when all that has been posted has left for NATS.
func (l *Link) endPosts() {
	left := make(chan struct{})
	l.post(letter{left: left})
	<-left
	close(l.out.stop)
	<-l.out.done
}
