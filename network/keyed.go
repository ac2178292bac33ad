package network

import (
	"context"
	"sync"
)

// keyed holds one lock per key. Its zero value is ready to use.
type keyed[K comparable] struct {
	mu   sync.Mutex
	held map[K]*keyedLock
}

type keyedLock struct {
	token   chan struct{} // contains one element while the lock is free
	waiting int           // callers that hold the lock or wait for it
}

// lock acquires the key's lock. It returns an error if ctx is done first.
func (k *keyed[K]) lock(ctx context.Context, key K) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[K]*keyedLock)
	}
	l := k.held[key]
	if l == nil {
		l = &keyedLock{token: make(chan struct{}, 1)}
		l.token <- struct{}{}
		k.held[key] = l
	}
	l.waiting++
	k.mu.Unlock()

	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.waiting--; l.waiting == 0 {
			delete(k.held, key)
		}
	}
	select {
	case <-l.token:
		return func() { l.token <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
