// Package seal encrypts the values of secrets. Brokers have a file of keys. From
// each of them a key for every app is derived, and a value is encrypted with the
// key of its app. The app and the name of the secret are authenticated with the
// value, so it cannot be decrypted as that of another app or name. The keys of one
// app decrypt the values of that app only.
//
// The file has one key on each line: the first one encrypts, and each of them
// decrypts.
package seal
