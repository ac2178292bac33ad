package pull

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// Claimer is who claims a job.
type Claimer struct {
	By     string // for people
	Host   string // the registered host that it is, or ""
	Ticket Ticket // its own: the same claim again is answered as before. A host's is that of its registration
}

// Claim returns a job that is on offer to who asks first; when it returns nil
// that is on disk. Errors: not_found, there is no such job (any more), or no such host;
// conflict, somebody else has it, or the host has no room for it; forbidden, the
// host is another's; unavailable,
// it could not be written down, and is still on offer.
func (d *Driver) Claim(name string, who Claimer) error {
	d.mu.Lock()
	j, err := d.claimable(name, who)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	if j.phase == running { // this very claim, again
		j.heard = time.Now()
		d.mu.Unlock()
		return nil
	}
	j.By, j.Host, j.StartedAt, j.Ticket = who.By, who.Host, time.Now().UTC(), who.Ticket.hash()
	j.enter(claiming)
	d.mu.Unlock()

	err = d.write(j.record)

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		j.By, j.Host, j.Ticket = "", "", nil
		j.enter(offered)
		return bourse.Errorf(bourse.CodeUnavailable, "the claim of job %s could not be written down: %w", name, err)
	}
	delete(d.offers, j.ID.Machine)
	d.jobs[j.ID.Machine] = j
	d.take(j)
	j.heard = time.Now()
	j.enter(running)
	d.tell() // those who follow its log
	return nil
}

// claimable returns the job that who may claim, or has claimed. Its caller holds
// mu.
func (d *Driver) claimable(name string, who Claimer) (*job, error) {
	h, err := d.hostNamed(who.Host, who.Ticket)
	if err != nil {
		return nil, err
	}
	j := d.names[name]
	switch {
	case j == nil:
		return nil, errNoJob(name)
	case j.phase == running && who.Ticket.isOf(j.Ticket) && j.Host == who.Host:
		return j, nil
	case j.phase != offered:
		return nil, bourse.Errorf(bourse.CodeConflict, "job %s has been claimed", name)
	case h != nil && j.to != h && !d.free(h).holds(j.Size):
		return nil, bourse.Errorf(bourse.CodeConflict, "host %s has no room for job %s any more", h.name, name)
	}
	return j, nil
}

func errNoJob(name string) error {
	return bourse.Errorf(bourse.CodeNotFound, "no job %s", bourse.Quoted(name))
}

// Report is how a poller says that a job ended.
type Report struct {
	Code   int    // 0 to 255; with Error -1
	Error  string // why there is no code: it was given back
	Output []byte // of it the last MaxOutput bytes are kept
	Ticket Ticket // that the job was claimed with
}

// End records how a job ended; when it returns that is on disk. A repeated End
// is no error, and the first one stands. Errors: not_found; invalid, a code that
// cannot be; forbidden, it was claimed with another ticket; conflict, no one has claimed the job, or it has been given up;
// unavailable, it could not be written down.
func (d *Driver) End(name string, r Report) error {
	if r.Error == "" && (r.Code < 0 || r.Code > 255) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid exit code %d: use 0 to 255", r.Code)
	}
	d.mu.Lock()
	j := d.names[name]
	anothers := j != nil && j.claimed() && !r.Ticket.isOf(j.Ticket)
	d.mu.Unlock()
	switch {
	case j == nil:
		return errNoJob(name)
	case anothers:
		return errAnothers(name)
	}
	return d.finish(j, bourse.Exit{Code: r.Code, Error: r.Error}, r.Output, false)
}

// finish ends a claimed job, once.
func (d *Driver) finish(j *job, exit bourse.Exit, output []byte, givenUp bool) error {
	d.mu.Lock()
	for j.phase == ending { // two at once: the other one stands
		changed := j.changed
		d.mu.Unlock()
		<-changed // a write to disk
		d.mu.Lock()
	}
	switch j.phase {
	case running:
	case ended:
		defer d.mu.Unlock()
		if j.GivenUp && !givenUp {
			return bourse.Errorf(bourse.CodeConflict, "job %s has been given up: %s", j.Name, j.Exit.Error)
		}
		return nil
	case offered, claiming, ending, withdrawn:
		defer d.mu.Unlock()
		return bourse.Errorf(bourse.CodeConflict, "job %s has not been claimed", j.Name)
	}
	next := j.record
	exit.At = time.Now().UTC()
	next.Exit, next.GivenUp = &exit, givenUp
	next.Output = output[max(0, len(output)-MaxOutput):]
	j.enter(ending)
	d.mu.Unlock()

	err := d.write(next)

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		j.heard = time.Now()
		j.enter(running)
		return bourse.Errorf(bourse.CodeUnavailable, "the end of job %s could not be written down: %w", j.Name, err)
	}
	d.giveBack(j)
	j.Exit, j.GivenUp, j.Output = next.Exit, next.GivenUp, next.Output
	j.enter(ended)
	d.tell()
	return nil
}
