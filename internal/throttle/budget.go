package throttle

import "sync"

// reserve is the part of a budget that only small bodies may take: requests
// stay possible while large bodies fill the rest.
const reserve = 4

// budget is a number of bytes that large replies share.
type budget struct {
	total int64

	mu   sync.Mutex
	used int64
}

func newBudget(total int64) *budget { return &budget{total: total} }

// takeOne takes n bytes for something that is one piece. It reports whether there
// was space, which there always is when nothing else is held.
func (b *budget) takeOne(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used > 0 && n > b.total-b.used {
		return false
	}
	b.used += n
	return true
}

// put releases n bytes.
func (b *budget) put(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}
