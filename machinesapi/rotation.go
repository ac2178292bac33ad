package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// SharedKey names a key that several servers have.
type SharedKey string

// The shared keys.
const (
	KeyGossip  SharedKey = "gossip"  // encrypts the membership; every server has it
	KeySecrets SharedKey = "secrets" // encrypts the secrets of apps; brokers have it
	KeyCA      SharedKey = "ca"      // certifies servers; every server has its certificate, and brokers have a key of its issuer
)

// RotationStep is a step of a key's rotation.
type RotationStep string

// The steps of a rotation, in order. Each one begins when all servers have done the one before.
const (
	RotationCheck  RotationStep = "check"  // all servers must answer
	RotationAdd    RotationStep = "add"    // the servers receive the new key, but do not encrypt with it
	RotationUse    RotationStep = "use"    // the servers encrypt with the new key
	RotationRemove RotationStep = "remove" // the servers forget the old key
)

// Rotate is the body of a request for the next step of a rotation.
type Rotate struct {
	Start  bool   `json:"start,omitempty"`  // start a rotation unless one has begun
	CA     string `json:"ca,omitempty"`     // the new CA's certificate in PEM, if the key is a CA
	Issuer string `json:"issuer,omitempty"` // certificate and key, in PEM, of an issuer of the new CA

	KeepOld bool `json:"keep_old,omitempty"` // do not remove the old key
}

// Rotation is the result of one step of a rotation.
type Rotation struct {
	Step    RotationStep     `json:"step"`
	Started bool             `json:"started,omitempty"` // this step began a new rotation
	Done    bool             `json:"done"`              // the rotation is complete
	Blocked string           `json:"blocked,omitempty"` // why the next step has to wait for people
	Servers []RotationServer `json:"servers"`           // the servers that have the key, sorted by role and ID
}

// RotationServer is a server's part in a step.
type RotationServer struct {
	ID    bourse.WorkerID `json:"id"`
	Role  bourse.Role     `json:"role"`
	OK    bool            `json:"ok"`              // the server has done the step
	Error string          `json:"error,omitempty"` // why not
}

// Rotate carries out the next step of a key's rotation on all servers. Repeat the call until the
// result is done. If start is set, it starts a rotation unless one has begun. Errors:
// failed_precondition if the cluster has no such key.
func (o Operator) Rotate(ctx context.Context, key SharedKey, in Rotate) (Rotation, error) {
	return ask[Rotation](ctx, o.c, call{method: http.MethodPost, path: path("keys", string(key), "rotation"), in: in})
}
