package nats

import "time"

// deadline is one of a connection's. The connection's lock guards it.
type deadline struct {
	at    time.Time // zero: none
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(at time.Time, wake func()) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, wake)
	}
}

// SetDeadline sets both deadlines; the zero time means none.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy, &c.writeBy) }

// SetReadDeadline sets the deadline of reads, also of those in progress.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy) }

// SetWriteDeadline sets the deadline of writes, also of those in progress.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeBy) }

func (c *Conn) setDeadlines(t time.Time, of ...*deadline) error {
	c.mu.Lock()
	for _, d := range of {
		d.set(t, c.wake)
	}
	c.mu.Unlock()
	c.changed.Broadcast()
	return nil
}

// wake makes those that wait check again. It takes the lock, so that none is
// between checking and waiting.
func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Broadcast()
}
