package loop

import "sync"

// fair is the storage of a work queue whose keys belong to classes. Classes take turns, and
// a class has at most limit keys in work. The work queue calls Touch, Push, Len and Pop
// under its own lock; done and size may be called concurrently with them.
type fair struct {
	classOf func(Key) string
	limit   int

	mu      sync.Mutex
	classes map[string]*class
	// turns are the classes that have a key for a worker, in the order of their turns.
	turns []*class
	// working are the classes of the keys in work. A key may have another class by the end of
	// its work.
	working map[Key]*class
	waiting int
}

// class is the keys of one class. It exists while there are any.
type class struct {
	name    string
	keys    []Key
	working int
	listed  bool // in fair.turns
}

func newFair(classOf func(Key) string, limit int) *fair {
	return &fair{classOf: classOf, limit: limit, classes: map[string]*class{}, working: map[Key]*class{}}
}

// Touch implements workqueue.Queue. A key that is added again keeps its place.
func (f *fair) Touch(Key) {}

// Push implements workqueue.Queue.
func (f *fair) Push(key Key) {
	name := f.classOf(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.classes[name]
	if c == nil {
		c = &class{name: name}
		f.classes[name] = c
	}
	c.keys = append(c.keys, key)
	f.waiting++
	f.list(c)
}

// Len implements workqueue.Queue. It is 0 if there is no key for a worker now: the keys of
// a class with limit keys in work do not count.
func (f *fair) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.turns)
}

// Pop implements workqueue.Queue.
func (f *fair) Pop() Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.turns[0]
	f.turns[0], f.turns = nil, f.turns[1:]
	c.listed = false
	key := c.keys[0]
	c.keys = c.keys[1:]
	f.waiting--
	c.working++
	f.working[key] = c
	f.list(c)
	return key
}

// done records that the work on a key has ended. Its worker calls it before Done of the
// work queue, and takes another key afterwards: no other worker has to be woken for a key
// that has its turn by that.
func (f *fair) done(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.working[key]
	delete(f.working, key)
	c.working--
	f.list(c)
	if c.working == 0 && len(c.keys) == 0 {
		delete(f.classes, c.name)
	}
}

// list gives a class a turn if it may have one.
func (f *fair) list(c *class) {
	if c.listed || len(c.keys) == 0 || c.working >= f.limit {
		return
	}
	c.listed = true
	f.turns = append(f.turns, c)
}

// size returns the number of keys that wait.
func (f *fair) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}
