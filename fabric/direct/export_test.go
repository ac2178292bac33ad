package direct

// CallsOnce is how many calls a server serves at a time.
const CallsOnce = callsOnce

// Lines returns how many workers the fabric has a connection of calls to, or tries
// to have.
func (f *Fabric) Lines() int {
	f.lines.mu.RLock()
	defer f.lines.mu.RUnlock()
	return len(f.lines.peers)
}

// Calls returns how many calls of the fabric are in progress.
func (f *Fabric) Calls() (n int) {
	f.lines.mu.RLock()
	defer f.lines.mu.RUnlock()
	for _, p := range f.lines.peers {
		if p.known() && p.line != nil {
			p.line.mu.Lock()
			n += len(p.line.calls)
			p.line.mu.Unlock()
		}
	}
	return n
}
