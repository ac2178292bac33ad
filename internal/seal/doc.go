// Package seal encrypts the values of secrets. A broker has a file of keys, one on each line: the
// first key encrypts; all keys decrypt.
//
// Each key is used only to derive a key for every app. A value is encrypted with its
// app's key, and the app and the secret's name are authenticated with it. It therefore
// cannot be decrypted as a value of another app or name, and an app's keys decrypt
// only that app's values.
package seal
