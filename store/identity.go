package store

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// Identity identifies the worker, which creates it when it starts for the first time.
type Identity struct {
	Worker    bourse.WorkerID  `json:"worker"`
	Tag       bourse.WorkerTag `json:"tag"`
	Region    bourse.Region    `json:"region"`
	CreatedAt time.Time        `json:"created_at"`
}

var (
	identities  = table[Identity]{bucket: bucketMeta} // has at most one record, with the key keyIdentity
	keyIdentity = []byte("identity")
)

// Identity returns the worker's identity. It returns false if no identity has been set yet.
func (t *Tx) Identity() (Identity, bool, error) { return identities.get(t, keyIdentity) }

// PutIdentity sets the worker's identity.
func (t *Tx) PutIdentity(id Identity) error { return identities.put(t, keyIdentity, &id) }
