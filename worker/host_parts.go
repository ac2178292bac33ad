package worker

import (
	"context"
	"net"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/worker/machines"

	"github.com/bourse-dev/bourse/worker/volumes"
)

// Images are the images that the host has, and the way to more of them.
type Images interface {
	machines.ImageHost
	// List returns every image, those being pulled too.
	List(ctx context.Context) ([]bourse.Image, error)
	// Prune removes every image that is not in use, and returns those.
	Prune(ctx context.Context) ([]bourse.Image, error)
	// SetInUse sets what is asked before an image is removed. It is called
	// before the store runs.
	SetInUse(inUse func(digest string) bool)
	// Changed returns a channel of capacity one that holds a token when List may
	// have changed. It is always the same channel.
	Changed() <-chan struct{}
}

// Network gives machines a network of their own.
type Network interface {
	machines.Network
	// Dial connects to a TCP port of a machine.
	Dial(ctx context.Context, machine bourse.MachineID, port uint16) (net.Conn, error)
	// Labels are the facts of the network, "network": "private" say.
	Labels() map[string]string
}

// Volumes makes volumes on the host, and scratch space.
type Volumes interface {
	volumes.Host
	machines.Scratch
}

// Puller is a driver whose tasks are fetched by others, who ask for work: its
// Start hands a task to one of them and returns when that one has claimed it.
// CodeInsufficient: no one asks for work just now.
type Puller interface {
	driver.Driver
	// Room returns the reason why a task with these limits would be refused
	// now, nil if it would not. It does not block.
	Room(limits driver.Limits) *bourse.Refusal
}
