// A private pool of threads for one fit or one prediction, and the watch that can stop its work.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "platform.hpp"

namespace margrave {

inline double seconds_since(std::chrono::steady_clock::time_point when) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - when).count();
}

// Whether the user has pressed Ctrl-C or the time is over. The calling thread checks it between
// pieces of work.
class Watch {
    using Clock = std::chrono::steady_clock;

  public:
    // May take the interpreter's lock, so that it is called every 20 ms at most.
    std::function<bool()> interrupted;
    Clock::time_point deadline = Clock::time_point::max();

    void limit(double seconds) {
        stopped_ = false;
        deadline = seconds < 1e9 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                      std::chrono::duration<double>(seconds))
                                 : Clock::time_point::max();
    }
    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
    bool check() {
        const auto now = Clock::now();
        if (now >= deadline) stopped_ = true;
        if (interrupted && now - asked_ > std::chrono::milliseconds(20)) {
            asked_ = now;
            if (interrupted()) stopped_ = was_interrupted = true;
        }
        return stopped();
    }
    bool was_interrupted = false;

  private:
    std::atomic<bool> stopped_{false};
    Clock::time_point asked_{};
};

class Threads {
  public:
    explicit Threads(int count) : count_(count < 1 ? 1 : count) {}
    ~Threads() { retire(); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

    int count() const { return count_; }

    // Calls job(task, worker) for every task; tasks are handed out in order. False if the watch
    // stopped it half-way.
    template <class Job>
    bool run(std::int64_t tasks, Watch* watch, Job&& job) {
        if (count_ == 1 || tasks < 2) {
            for (std::int64_t t = 0; t < tasks; ++t) {
                if (watch && watch->check()) return false;
                job(t, 0);
            }
            return !(watch && watch->stopped());
        }
        hire();
        Team& team = *team_;
        {
            std::lock_guard lock(team.mutex);
            team.job = [&](std::int64_t t, int worker) { job(t, worker); };
            team.tasks = tasks;
            team.next = 0;
            team.busy = count_ - 1;
            team.watch = watch;
            team.failure = nullptr;
            ++team.call;
        }
        team.wake.notify_all();
        team.work(0, true);
        std::unique_lock lock(team.mutex);
        team.done.wait(lock, [&] { return team.busy == 0; });
        team.job = nullptr;
        if (team.failure) std::rethrow_exception(team.failure);
        return !(watch && watch->stopped());
    }

  private:
    struct Team {
        std::mutex mutex;
        std::condition_variable wake, done;
        std::function<void(std::int64_t, int)> job;
        std::int64_t tasks = 0;
        std::atomic<std::int64_t> next{0};
        int busy = 0;
        std::uint64_t call = 0;
        bool over = false;
        Watch* watch = nullptr;
        std::exception_ptr failure;
        std::vector<std::thread> members;

        void work(int worker, bool caller) {
            try {
                for (;;) {
                    if (watch && (caller ? watch->check() : watch->stopped())) return;
                    const std::int64_t t = next.fetch_add(1);
                    if (t >= tasks) return;
                    job(t, worker);
                }
            } catch (...) {
                std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
                next = tasks;
            }
        }
        void serve(int worker) {
            std::uint64_t seen = 0;
            for (;;) {
                {
                    std::unique_lock lock(mutex);
                    wake.wait(lock, [&] { return over || call != seen; });
                    if (over) return;
                    seen = call;
                }
                work(worker, false);
                std::lock_guard lock(mutex);
                if (--busy == 0) done.notify_one();
            }
        }
    };

    void hire() {
        if (team_ && process_ == process_id()) return;
        // After a fork the threads are gone and their lock may be taken: start again.
        team_.release();
        team_ = std::make_unique<Team>();
        process_ = process_id();
        for (int w = 1; w < count_; ++w)
            team_->members.emplace_back([team = team_.get(), w] { team->serve(w); });
    }
    void retire() {
        if (!team_) return;
        if (process_ != process_id()) {
            team_.release();
            return;
        }
        {
            std::lock_guard lock(team_->mutex);
            team_->over = true;
        }
        team_->wake.notify_all();
        for (auto& t : team_->members) t.join();
    }

    int count_;
    int process_ = 0;
    std::unique_ptr<Team> team_;
};

}  // namespace margrave
