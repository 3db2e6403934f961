package model

// ReadRate returns r_j(p_j)/p_j, the read rate of one of the class's threads, MB/s.
func (e *Environment) ReadRate(j int) float64 {
	c := &e.Classes[j]
	return c.Read.At(float64(c.Threads)) / float64(c.Threads)
}

// WriteRate returns w_j(p_j)/p_j, the write rate of one of the class's threads, MB/s.
func (e *Environment) WriteRate(j int) float64 {
	c := &e.Classes[j]
	return c.Write.At(float64(c.Threads)) / float64(c.Threads)
}

// SourceRate returns min(b_fs, t(gamma)/gamma), the rate of each of gamma nodes that read from the
// source at the same time, MB/s. gamma counts the reader itself, so it is at least 1.
func (e *Environment) SourceRate(gamma int) float64 {
	g := float64(max(1, gamma))
	return min(e.SourceBandwidth, e.SourceThroughput.At(g)/g)
}

// NodeRate returns the rate at which class j serves all threads of a node that fill the staging
// buffer, MB/s: r_j(p_0).
func (e *Environment) NodeRate(j int) float64 {
	return e.Classes[j].Read.At(float64(e.Classes[0].Threads))
}

// NodeSourceRate returns the rate at which each of gamma nodes reads samples of size MB from the
// source with the threads that fill its staging buffer, MB/s. Latency delays each read, and takes
// nothing from the source.
func (e *Environment) NodeSourceRate(gamma int, size float64) float64 {
	rate := e.SourceRate(gamma)
	if e.SourceLatency <= 0 {
		return rate
	}
	threads := float64(max(e.Classes[0].Threads, 1)) * size
	return threads / (e.SourceLatency + threads/rate)
}

// FetchSource returns the time in seconds to fetch size MB from the source while gamma-1 other
// nodes read from it too: thesis equation 3.5, plus the source's latency.
func (e *Environment) FetchSource(size float64, gamma int) float64 {
	return e.SourceLatency + size/e.SourceRate(gamma)
}

// FetchPeer returns the time to fetch size MB from class j of another node:
// thesis equation 3.6. Seconds.
func (e *Environment) FetchPeer(size float64, j int) float64 {
	return size / min(e.PeerBandwidth, e.ReadRate(j))
}

// FetchLocal returns the time to fetch size MB from the node's own class j:
// thesis equation 3.7. Seconds.
func (e *Environment) FetchLocal(size float64, j int) float64 {
	return size / e.ReadRate(j)
}

// ThreadRate returns the rate at which one of the p_0 threads transforms samples while all do, in
// MB/s: beta, unless there are fewer cores than threads.
func (e *Environment) ThreadRate() float64 {
	threads := e.Classes[0].Threads
	return e.Preprocess * (e.Processors.Work(threads) / float64(threads))
}

// SourceThreadWork returns how long a thread of the p_0 threads is kept from transforming by a read
// of the source, while all of them work: SourceWork, or more if there are fewer cores than threads.
// Seconds.
func (e *Environment) SourceThreadWork() float64 {
	threads := e.Classes[0].Threads
	return e.SourceWork * float64(threads) / e.Processors.Work(threads)
}

// Write returns the time to transform size MB and store them in the staging
// buffer, which are pipelined: write_i(k) of thesis 3.1.3,
// max(s/beta, s/(w_0(p_0)/p_0)), with beta as ThreadRate has it. Seconds.
func (e *Environment) Write(size float64) float64 {
	return max(size/e.ThreadRate(), size/e.WriteRate(0))
}

// Read returns the time to bring a sample of size MB into the staging buffer, whose
// fetch takes fetch seconds: thesis equation 3.4. Seconds.
func (e *Environment) Read(size, fetch float64) float64 {
	return fetch + e.Write(size)
}

// Available returns avail_i(f) for every f: when each sample of the access stream is in the staging
// buffer, given the reads (thesis equation 3.3) and ideally balanced
// threads. Appends to dst; seconds from the start of training.
func (e *Environment) Available(dst, reads []float64) []float64 {
	threads, sum := float64(e.Classes[0].Threads), 0.0
	for _, r := range reads {
		sum += r
		dst = append(dst, sum/threads)
	}
	return dst
}

// Consume returns t_{i,f} for every f: when each sample of the access stream is consumed, given
// when it is available and the sizes in MB (thesis equation 3.2). The first one is consumed once it
// is available. Appends to dst; seconds from the start of training.
func (e *Environment) Consume(dst, avail, sizes []float64) []float64 {
	free := 0.0 // when the computation on the previous sample ends
	for f, a := range avail {
		t := max(a, free)
		dst = append(dst, t)
		free = t + sizes[f]/e.Compute
	}
	return dst
}
