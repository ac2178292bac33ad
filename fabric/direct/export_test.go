package direct

// CallsOnce is the maximum number of calls that a server serves concurrently.
const CallsOnce = maxCalls

// Conns returns the number of workers to which the fabric has, or is opening, a connection for calls.
func (f *Fabric) Conns() (n int) {
	f.conns.mu.RLock()
	defer f.conns.mu.RUnlock()
	for _, p := range f.conns.peers {
		if !p.ended() {
			n++
		}
	}
	return n
}
