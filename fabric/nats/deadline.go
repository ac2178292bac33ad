package nats

import "time"

// deadline is a read or write deadline, guarded by the connection's lock.
type deadline struct {
	at    time.Time // zero means no deadline
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

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy, &c.writeBy) }

// SetReadDeadline implements net.Conn. It also affects reads in progress.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy) }

// SetWriteDeadline implements net.Conn. It also affects writes in progress.
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

// wake makes waiting calls check their conditions again. It acquires the lock, because otherwise it could miss a call
// that has checked its condition but is not waiting yet.
func (c *Conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Broadcast()
}
