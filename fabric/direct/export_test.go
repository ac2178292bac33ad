package direct

// CallsOnce is how many calls a server serves at a time.
const CallsOnce = callsOnce

// Conns returns how many workers the fabric has a connection of calls to, or
// tries to have.
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
